"""A share of the texts that `scripts/fuzz_readers.py` tries on every reader; the whole of it is twenty thousand."""

from fuzz_readers import failures, readers


def test_no_text_is_a_traceback():
    assert list(failures(2 * len(readers()), seed=1)) == []
