import pytest

from codexdrv.protocol.events import Unrecognized, Warned
from codexdrv.protocol.warnings import UNSAVED, is_unsaved


def test_a_record_that_cannot_be_written_is_warned_of():
    assert is_unsaved(Warned(None, f"{UNSAVED}; Codex will continue retrying"))


@pytest.mark.parametrize("message", ["", "The model is slow today"])
def test_another_warning_is_not_about_the_record(message):
    assert not is_unsaved(Warned(None, message))


def test_the_same_words_elsewhere_warn_of_nothing():
    assert not is_unsaved(Unrecognized(UNSAVED))
