"""Errors of clients as one line of text."""

import logging

import pytest

from fedtide.deploy.errors import LENGTH, Recorder, escaped, told

OPEN = {"partition-id": 3, "share_errors": True}


def caught(work):
    with pytest.raises(Exception) as info:
        work()
    return info.value


def test_only_the_place_travels():
    error = caught(lambda: {}["the patient's name"])
    assert told(error, {"partition-id": 3}).startswith("client 3: KeyError at test_errors.py:")
    assert "patient" not in told(error, {"partition-id": 3})
    assert "patient" not in told(error, {"share_errors": False})


def test_a_message_and_the_log_if_they_are_shared():
    Recorder.begin()
    logging.getLogger("data").warning("read 5 files")
    said = told(caught(lambda: int("\x1b[31mten\n")), OPEN, is_known=True)
    assert said.startswith("ValueError at test_errors.py:")
    assert "ten" in said
    assert said.endswith("read 5 files")
    assert said.isprintable()


def test_the_place_is_in_the_code_of_the_user():
    """An error inside torch is shown where the user's code called it."""
    import torch

    error = caught(lambda: torch.ones(2) @ torch.ones(3))
    assert "at test_errors.py:" in told(error, {})
    syntax = caught(lambda: compile("a = (\n", "/srv/secret/data.py", "exec"))
    assert "SyntaxError at data.py:1" in told(syntax, {})


def test_what_others_wrote_is_one_short_line():
    assert escaped("a\nfedtide: done\x1b[0m") == r"a\nfedtide: done\x1b[0m"
    assert len(escaped("\x00" * 10 * LENGTH)) == LENGTH
