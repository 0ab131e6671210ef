"""Training over several buildings: placement, schedule and network chosen together.

`question` and `cases` (what is asked), `degrees` (how many accelerators every axis has), `placements`, `schedules` and `networks` (what there
is to choose from), `steps` (one plan on many networks), `search`, `intervals`, `purchases`, `crossings`, `documents`, `cluster` (one case),
`published`, `answer`."""

from shardmeter.study.scale_across.answer import ScaleAcross, scale_across

__all__ = ["ScaleAcross", "scale_across"]
