"""Cells that hold what their column cannot: all of a file, whatever becomes of their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardmeter.core.errors import shown
from shardmeter.study.validate.layout import Table
from shardmeter.study.validate.rows import Damaged, Row

READERS: Mapping[str, Callable[[Row, str], object]] = {
    "year": Row.number,
    **dict.fromkeys(
        ("n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "head_dim", "vocab", "n_experts", "top_k",
         "moe_ffn_hidden", "seq_len", "n_accelerators", "accelerators_per_node", "parallel_tp", "tp", "pp", "parallel_pp",
         "virtual_pp", "cp", "ep", "dp", "micro_batch", "global_batch", "nodes", "mbs", "gbs"),
        Row.count,
    ),
    **dict.fromkeys(
        ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "tflops_per_gpu", "peak_memory_gib"), Row.positive
    ),
}  # fmt: skip
"""Columns that hold numbers, each with how it is read; `nodes`, `mbs`, `gbs` are those of a published table of failures."""
MOST_NAMED = 5
"""Cells that the warning names; the report has all."""


def damaged(
    table: Table, ids: Sequence[str], readers: Mapping[str, Callable[[Row, str], object]] = READERS
) -> list[dict[str, Any]]:
    """Every damaged cell of a file, row by row: the row's id and line, column, value and the rule that it breaks.

    `ids` are those of the report, one for each row; `readers` reads the columns of numbers of the layout. Cells of words are
    left out: what cannot be read of them is a row's reason."""
    columns = [(column, readers[column]) for column in table.columns if column in readers]
    found = []
    for row, name in zip(table.rows, ids, strict=True):
        for column, read in columns:
            try:
                read(row, column)
            except Damaged as fault:
                cell = {"column": column, "value": row.text(column), "rule": fault.rule}
                found.append({"id": name, "line": row.line, **cell})
    return found


def warning(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """One sentence about damaged cells, which names the first of them; none where there are none."""
    if not cells:
        return []
    named = "; ".join(
        f"{one['id']} (line {one['line']}): {one['column']} = {shown(one['value'], 40)}, not {one['rule']}"
        for one in cells[:MOST_NAMED]
    )
    count = "1 cell is" if len(cells) == 1 else f"{len(cells)} cells are"
    return [f"{count} damaged: {named}{' …' if len(cells) > MOST_NAMED else ''}"]
