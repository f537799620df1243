"""Files of sections: round trips, and every kind of damage is an ArtifactError."""

import os

import pytest

from intarsia.runtime import artifact
from intarsia.support.errors import ArtifactError


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.intarsia"
    artifact.save(path, {"b": 1, "a": [1, "x"]}, {"one": b"1234567", "none": b"", "two": bytes(1000)})
    return path


def test_what_was_saved_is_loaded(saved):
    meta, sections = artifact.load(saved)
    assert meta == {"b": 1, "a": [1, "x"]}
    assert {k: bytes(v) for k, v in sections.items()} == {"one": b"1234567", "none": b"", "two": bytes(1000)}


def test_equal_contents_give_equal_bytes(saved, tmp_path):
    artifact.save(
        tmp_path / "b", {"a": [1, "x"], "b": 1}, {"one": b"1234567", "none": b"", "two": bytes(1000)}
    )
    assert (tmp_path / "b").read_bytes() == saved.read_bytes()


def test_a_file_cut_anywhere_is_refused(saved, tmp_path):
    data = saved.read_bytes()
    for length in [0, 1, 7, 8, 20, 47, 48, 100, 300, len(data) - 1001, len(data) - 1]:
        cut = tmp_path / "cut"
        cut.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match="ART-00"):
            artifact.load(cut)


def test_a_changed_byte_is_found(saved, tmp_path):
    data = saved.read_bytes()
    meta, sections = artifact.load(saved)
    for at in [0, 9, 13, 20, 60, len(data) - 1]:
        changed = bytearray(data)
        changed[at] ^= 0x41
        (tmp_path / "changed").write_bytes(changed)
        with pytest.raises(ArtifactError, match="ART-00"):
            artifact.load(tmp_path / "changed")


def test_garbage_and_missing_files_are_refused(tmp_path):
    (tmp_path / "g").write_bytes(os.urandom(5000))
    with pytest.raises(ArtifactError, match="ART-001"):
        artifact.load(tmp_path / "g")
    with pytest.raises(ArtifactError, match="ART-005"):
        artifact.load(tmp_path / "nothing")
    with pytest.raises(ArtifactError, match="ART-005"):
        artifact.load(tmp_path)


def test_another_version_is_refused_with_advice(saved):
    data = bytearray(saved.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    saved.write_bytes(data)
    with pytest.raises(ArtifactError, match="ART-002.*99(.|\n)*save the model again"):
        artifact.load(saved)


def test_a_failed_save_leaves_the_old_file_and_no_rubbish(saved, tmp_path):
    before = saved.read_bytes()
    with pytest.raises(TypeError):
        artifact.save(saved, {"a": {1, 2}}, {"one": b"1"})
    assert saved.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [saved.name]
