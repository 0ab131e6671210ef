"""torchft in torchtitan 0.2: torchtitan's parser reads it."""

from pathlib import Path

from parsers_ask import loaded

TRAINER = loaded(Path(__file__).with_name("torchtitan_0_2.py"))
"""The check of the trainer that torchft is part of."""
FORMAT = "torchft"
FOR, ENVIRONMENT, NEEDS, KEYS, ALONE = TRAINER.FOR, TRAINER.ENVIRONMENT, TRAINER.NEEDS, TRAINER.KEYS, TRAINER.ALONE
parser, accepts = TRAINER.parser, TRAINER.accepts
