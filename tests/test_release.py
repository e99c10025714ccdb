"""A release has one version, a section of the changelog, and the addresses of its repository."""

import email
import zipfile

from tools import release

ADDRESS = "https://example.org/somebody/torchtrt"


def test_a_version_that_the_checkout_does_not_have_is_no_release():
    """Each file that has another version is named."""
    obstacles = release.obstacles_to("99.0")

    assert len(release.projects(release.ROOT)) + 1 == len(obstacles)
    assert "core/pyproject.toml has another version than 99.0." in obstacles
    assert "CHANGELOG.md has no section" in obstacles[-1]


def test_a_tag_without_a_changelog_builds_nothing(tmp_path, capsys):
    """The sections of a version have a date when it is released."""
    status = release.main(["99.0", "--repository", ADDRESS, "--output", str(tmp_path / "out")])

    assert 1 == status
    assert "CHANGELOG.md has no section" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_released_files_have_the_addresses_of_their_repository(tmp_path):
    """The sources have none: a fork releases under its own."""
    release.build("0.1.0", ADDRESS, tmp_path / "out", chosen="rtx")

    (wheel,) = (tmp_path / "out").glob("*.whl")
    assert (tmp_path / "out/torchtrt_rtx-0.1.0.tar.gz").is_file()
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(entry))
    assert f"Repository, {ADDRESS}" in metadata.get_all("Project-URL")
