"""One description of an answer (`Document`), four outputs: terminal, Markdown, CSV, JSON.

The pages (`prediction`, `explanation`, `validation`, `listing`) turn an answer's plain data into a `Document`; the writers
(`terminal`, `markdown`, `csv_text`, `json_text`) turn a `Document` into text. Neither knows the other. A `Figure` among its sections is
drawn in letters (`chart`); `plot` makes a picture of it, `plot_html` a page.
"""

from shardmeter.render.document import Column, Document, Facts, Notes, Section, Table
from shardmeter.render.figure import Figure

__all__ = ["Column", "Document", "Facts", "Figure", "Notes", "Section", "Table"]
