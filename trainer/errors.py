"""The errors that a person reads, each one sentence, with the exit code that the driver ends with.

TrainerError        1   the run started and cannot go on
└── ConfigError     2   trainer.json cannot be run as it is
"""

from __future__ import annotations


class TrainerError(Exception):
    """The run cannot go on; the message is the one sentence that is printed."""

    exit_code = 1


class ConfigError(TrainerError):
    """trainer.json is missing, is no JSON or holds a value that cannot work; nothing started."""

    exit_code = 2
