"""The journal's file: written line by line, read again, cut back to a mark."""

import pytest

from fedtide.core.errors import OutputError
from fedtide.record.journal import Journal, read


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def written(path, rounds, fresh=True):
    journal = Journal(path, fresh)
    for t in range(rounds):
        journal.append({"t": t})
    return journal


def test_every_line_is_in_the_file_at_once(path):
    journal = written(path, 2)
    assert read(path) == journal.lines == [{"t": 0}, {"t": 1}]
    journal.close()


def test_a_line_that_a_crash_cut_short_is_left_out(path):
    path.write_text('{"t": 0}\n{"t": 1, "acc')
    assert read(path) == [{"t": 0}]


def test_a_journal_continues_after_a_mark(path):
    first = written(path, 1)
    mark = first.mark()
    first.append({"t": 1})
    first.close()
    again = Journal(path, fresh=False)
    again.rewind(mark)
    again.append({"t": "again"})
    again.close()
    assert read(path) == again.lines == [{"t": 0}, {"t": "again"}]


def test_without_a_mark_it_begins_anew(path):
    written(path, 2).close()
    again = Journal(path, fresh=False)
    assert len(read(path)) == 2  # nothing is lost before `rewind`
    again.rewind(None)
    again.close()
    assert read(path) == again.lines == []


def test_a_mark_needs_the_file(path):
    journal = written(path, 1)
    mark = journal.mark()
    journal.close()
    with pytest.raises(OutputError, match="Give Journal the path of that file"):
        Journal().rewind(mark)


def test_numbers_that_json_does_not_know_are_refused(path):
    journal = Journal(path)
    with pytest.raises(ValueError, match="JSON"):
        journal.append({"loss": float("nan")})
    journal.close()
