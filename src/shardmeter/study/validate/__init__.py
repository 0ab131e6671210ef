"""Comparing predictions with measured runs: reading files of runs, mapping their texts, scoring, bars."""

from shardmeter.study.validate.layout import Table, read_table
from shardmeter.study.validate.report import Report, validate
from shardmeter.study.validate.resolve import MappedRow, map_rows

__all__ = ["MappedRow", "Report", "Table", "map_rows", "read_table", "validate"]
