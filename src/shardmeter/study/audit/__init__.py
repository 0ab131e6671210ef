"""`audit`: what somebody states about a run, checked against itself, the model, the machines and what was ever measured.

Statements (`claims`) are numbers of quantities (`quantities`) that identities join (`identities`); what some of them imply of another is
worked out along these (`web`). Where two disagree, the ratio is looked up among named factors (`factors`); what no machine does is
refused (`limits`); an MFU is told in every convention (`conventions`).
"""

from shardmeter.study.audit.answer import Audit, audit

__all__ = ["Audit", "audit"]
