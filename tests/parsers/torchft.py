"""torchft in torchtitan 0.3: torchtitan's parser reads it."""

from pathlib import Path

from parsers_ask import loaded

TRAINER = loaded(Path(__file__).with_name("torchtitan.py"))
"""The check of the trainer that torchft is part of."""
FORMAT = "torchft"
FOR, ENVIRONMENT, NEEDS, KEYS = TRAINER.FOR, TRAINER.ENVIRONMENT, TRAINER.NEEDS, TRAINER.KEYS
parser, accepts = TRAINER.parser, TRAINER.accepts
