"""The scan over installed distributions, on folders with real metadata in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchtrt.packs.scan import Scan, scan


def scan_folders(*folders: Path) -> Scan:
    """Returns what a scan finds in folders, as if they were all of ``sys.path``."""
    return scan(importlib_metadata.distributions(path=[str(folder) for folder in folders]))


def write_metadata(folder: Path, stem: str, **files: bytes) -> Path:
    """Writes a distribution's metadata folder: ``METADATA`` and ``entry_points`` as bytes."""
    made = folder / f"{stem}.dist-info"
    made.mkdir(parents=True)
    for name, content in files.items():
        (made / {"entry_points": "entry_points.txt"}.get(name, name)).write_bytes(content)
    return made


def metadata_of(name: str, version: str = "1.0") -> bytes:
    """Returns the headers of a METADATA file."""
    return (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not a header\n".encode()
    )


def entry_of(pack: str, module: str | None = None) -> bytes:
    """Returns an ``entry_points.txt`` with one pack, after another group."""
    module = module or f"torchtrt_converters_{pack}._pack"
    return f"[console_scripts]\nfoo = foo:main\n\n[torchtrt.converters]\n# ours\n{pack} = {module}\n".encode()


def write_pack(folder: Path, pack: str, version: str = "1.0") -> None:
    """Writes the metadata of a well-formed pack."""
    distribution = f"torchtrt-converters-{pack.replace('_', '-')}"
    write_metadata(
        folder,
        f"{distribution.replace('-', '_')}-{version}",
        METADATA=metadata_of(distribution, version),
        entry_points=entry_of(pack),
    )


def names(scan_: Scan) -> list[str]:
    """Returns the names of the packs found, in order."""
    return [pack.info.name for pack in scan_.packs]


def codes(scan_: Scan) -> list[str]:
    """Returns the codes of the problems found."""
    return [problem.code for problem in scan_.problems]


def test_a_pack_is_known_from_its_metadata_alone(tmp_path: Path) -> None:
    """Name, distribution, version, folder and tier come from the metadata; there is no module to import."""
    write_pack(tmp_path, "aten_core", "0.1.0")

    (pack,) = scan_folders(tmp_path).packs

    assert (pack.info.name, pack.info.distribution) == (
        "aten_core",
        "torchtrt-converters-aten-core",
    )
    assert (pack.info.version, Path(pack.info.location)) == ("0.1.0", tmp_path)
    assert pack.info.tier == 0
    assert pack.module == "torchtrt_converters_aten_core._pack"


def test_packs_come_in_pack_order(tmp_path: Path) -> None:
    """Core, experimental, what the distribution torchtrt-all requires, then third parties by name.

    The name torchtrt is somebody else's on the public index: what that distribution requires is not ours.
    """
    for pack in ("zebra", "quantization", "aten_experimental", "abacus", "aten_core"):
        write_pack(tmp_path, pack)
    for name, required in (("torchtrt-all", "quantization"), ("torchtrt", "zebra")):
        root = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        root.mkdir()
        root.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            f"Requires-Dist: torchtrt-converters-{required} ==1.0\n"
        )

    expected = ["aten_core", "aten_experimental", "quantization", "abacus", "zebra"]
    assert names(scan_folders(tmp_path)) == expected


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"METADATA": b"Version: 1.0\n", "entry_points": entry_of("bad")}, "no Name"),
        (
            {"METADATA": b"Name: torchtrt-converters-bad\n", "entry_points": entry_of("bad")},
            "no Version",
        ),
        ({"entry_points": entry_of("bad")}, "no Name"),
        ({"METADATA": b"\xff", "entry_points": entry_of("bad")}, "UnicodeDecodeError"),
        (
            {"METADATA": metadata_of("x"), "entry_points": entry_of("bad") + b"\xff"},
            "UnicodeDecodeError",
        ),
    ],
    ids=["no-name", "no-version", "no-metadata", "metadata-bytes", "entry-points-bytes"],
)
def test_unreadable_metadata_is_one_problem_and_the_others_are_found(
    tmp_path: Path, files: dict[str, bytes], what: str
) -> None:
    """Reading goes distribution by distribution."""
    write_metadata(tmp_path, "torchtrt_converters_bad-1.0", **files)
    write_pack(tmp_path, "good")

    scanned = scan_folders(tmp_path)

    assert names(scanned) == ["good"]
    (problem,) = scanned.problems
    assert problem.code == "bad-metadata"
    assert what in problem.what
    assert problem.distribution == "torchtrt_converters_bad-1.0.dist-info"


def test_broken_metadata_of_a_distribution_that_is_no_pack_is_not_our_business(
    tmp_path: Path,
) -> None:
    """No warning about files of other packages."""
    write_metadata(tmp_path, "other-1.0", METADATA=b"\xff", entry_points=b"[console_scripts]\n\xff")
    write_metadata(
        tmp_path, "another-1.0", METADATA=b"\xff", entry_points=b"[console_scripts]\nno equals\n"
    )

    assert scan_folders(tmp_path) == Scan((), ())


def test_a_byte_order_mark_hides_no_pack(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    metadata = metadata_of("torchtrt-converters-probe")
    entry = "[torchtrt.converters]\nprobe = torchtrt_converters_probe._pack\n".encode("utf-8-sig")
    write_metadata(tmp_path, "torchtrt_converters_probe-1.0", METADATA=metadata, entry_points=entry)

    assert (["probe"], ()) == (names(scan_folders(tmp_path)), scan_folders(tmp_path).problems)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_entry_points_in_another_encoding_are_a_problem(tmp_path: Path, encoding: str) -> None:
    """They name a pack that Python itself would not find."""
    metadata = metadata_of("torchtrt-converters-probe")
    entry = entry_of("probe").decode().encode(encoding)
    write_metadata(tmp_path, "torchtrt_converters_probe-1.0", METADATA=metadata, entry_points=entry)

    (problem,) = scan_folders(tmp_path).problems

    assert "bad-metadata" == problem.code
    assert "torchtrt_converters_probe-1.0.dist-info" == problem.distribution


@pytest.mark.parametrize("file", ["METADATA", "entry_points"])
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-32"),
        lambda text: text.replace("# by", "# by Jos\xe9").encode("latin-1"),
        lambda text: text.replace("\n", "\0").encode(),
        lambda text: bytes(len(text)),
        lambda text: b"",
    ],
    ids=["utf-16", "utf-16-le", "utf-32", "latin-1", "NUL for lines", "NULs", "empty"],
)
def test_a_file_in_a_bad_encoding_is_one_problem_that_names_its_folder(
    tmp_path: Path, encode: Callable[[str], bytes], file: str
) -> None:
    """Whichever of the two, whatever became of it on its way; the pack beside it is found."""
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: torchtrt-converters-odd\nVersion: 1.0\nAuthor: # by\n",
        "entry_points": "# by\n[torchtrt.converters]\nodd = torchtrt_converters_odd._pack\n",
    }
    written = {name: text.encode() for name, text in files.items()} | {file: encode(files[file])}
    write_metadata(tmp_path, "torchtrt_converters_odd-1.0", **written)
    write_pack(tmp_path, "good")

    scanned = scan_folders(tmp_path)

    assert ["good"] == names(scanned)
    (problem,) = scanned.problems
    assert "bad-metadata" == problem.code
    assert str(tmp_path) == problem.location
    assert problem.distribution in (
        "torchtrt_converters_odd-1.0.dist-info",
        "torchtrt-converters-odd",
    )


@pytest.mark.parametrize("entry_points", [None, b"", b"[console_scripts]\nfoo = foo:main\n"])
def test_a_pack_that_forgot_its_entry_point_is_a_problem(
    tmp_path: Path, entry_points: bytes | None
) -> None:
    """It would be installed and never seen; by its name it is one of ours."""
    files = {} if entry_points is None else {"entry_points": entry_points}
    stem = "torchtrt_converters_vision-1.0"
    write_metadata(tmp_path, stem, METADATA=metadata_of("torchtrt-converters-vision"), **files)

    (problem,) = scan_folders(tmp_path).problems

    assert "bad-metadata" == problem.code
    assert "torchtrt-converters-vision 1.0" in str(problem)
    assert "no entry point in the group torchtrt.converters" in str(problem)


def test_garbage_in_the_place_of_entry_points_is_a_problem(tmp_path: Path) -> None:
    """Whether or not anything in it can be read."""
    write_metadata(tmp_path, "torchtrt_converters_vision-1.0", entry_points=b"\xff\xfe\x00")

    assert ["bad-metadata"] == codes(scan_folders(tmp_path))


def test_a_half_deleted_distribution_does_not_hide_the_whole_one(tmp_path: Path) -> None:
    """An empty metadata folder is what an interrupted uninstall leaves behind."""
    write_metadata(tmp_path, "torchtrt_converters_vision-0.9")
    write_pack(tmp_path, "vision")

    scanned = scan_folders(tmp_path)

    assert names(scanned) == ["vision"]
    assert codes(scanned) == []


@pytest.mark.parametrize(
    ("distribution", "entry_points", "hint"),
    [
        ("torchtrt-converters-x", entry_of("Vision", "torchtrt_converters_x"), "lower-case"),
        ("torchtrt-converters-local", entry_of("local"), "lower-case"),
        ("torchtrt-converters-x", entry_of("x", "torchtrt_converters_x:pack.inner"), "x:pack"),
        ("torchtrt-converters-x", entry_of("x", "os.path"), "torchtrt_converters_x"),
        ("torchtrt-converters-x", entry_of("aten_core"), "'x'"),
        ("acme", entry_of("x"), "torchtrt-converters-x"),
        ("torchtrt-converters-x", b"[torchtrt.converters]\nx\n", "torchtrt_converters_x:pack"),
    ],
    ids=[
        "capital",
        "reserved",
        "not-a-module",
        "foreign-module",
        "other-name",
        "other-distribution",
        "no-value",
    ],
)
def test_names_that_do_not_follow_from_each_other_are_refused(
    tmp_path: Path, distribution: str, entry_points: bytes, hint: str
) -> None:
    """Pack, distribution and package have one name, so a pack cannot pose as another."""
    write_metadata(
        tmp_path, "some-1.0", METADATA=metadata_of(distribution), entry_points=entry_points
    )

    scanned = scan_folders(tmp_path)

    assert names(scanned) == []
    assert codes(scanned) == ["bad-name"]
    assert hint in scanned.problems[0].hint


@pytest.mark.parametrize("spelling", ["Torchtrt_Converters.My_Ops", "torchtrt-converters-my-ops"])
def test_a_distribution_may_spell_its_name_as_packaging_allows(
    tmp_path: Path, spelling: str
) -> None:
    """Runs of ``-``, ``_`` and ``.`` are the same, and so are cases."""
    write_metadata(
        tmp_path, "my_ops-1.0", METADATA=metadata_of(spelling), entry_points=entry_of("my_ops")
    )

    assert names(scan_folders(tmp_path)) == ["my_ops"]


def test_the_first_folder_on_the_path_wins_and_the_hidden_copy_is_a_problem(tmp_path: Path) -> None:
    """As for imports: what Python would import is what counts."""
    first, second = tmp_path / "a", tmp_path / "b"
    write_pack(first, "vision", "1.0")
    write_pack(second, "vision", "2.0")

    scanned = scan_folders(first, second)

    assert [pack.info.version for pack in scanned.packs] == ["1.0"]
    (problem,) = scanned.problems
    assert (problem.code, problem.version) == ("shadowed", "2.0")
    assert str(first) in problem.what


def test_of_two_versions_in_one_folder_the_newer_counts(tmp_path: Path) -> None:
    """A stale metadata folder beside the new one changes nothing, whatever the file system's order."""
    for version in ("1.10", "1.9", "not-a-version"):
        write_pack(tmp_path, "vision", version)

    scanned = scan_folders(tmp_path)

    assert [pack.info.version for pack in scanned.packs] == ["1.10"]
    assert codes(scanned) == ["shadowed", "shadowed"]


def test_an_editable_install_that_is_seen_twice_is_one_pack(tmp_path: Path) -> None:
    """Setuptools leaves an egg-info folder beside the sources."""
    write_pack(tmp_path / "site", "vision")
    egg = tmp_path / "src" / "torchtrt_converters_vision.egg-info"
    egg.mkdir(parents=True)
    (egg / "PKG-INFO").write_bytes(metadata_of("torchtrt-converters-vision"))
    (egg / "entry_points.txt").write_bytes(entry_of("vision"))

    scanned = scan_folders(tmp_path / "site", tmp_path / "src")

    assert names(scanned) == ["vision"]
    assert codes(scanned) == []


def test_a_finder_that_breaks_off_keeps_the_packs_seen_so_far(tmp_path: Path) -> None:
    """Another library's import hook cannot take everything down."""
    write_pack(tmp_path, "vision")

    def broken() -> Iterator[Any]:
        yield from importlib_metadata.distributions(path=[str(tmp_path)])
        raise OSError("network drive is gone")

    scanned = scan(broken())

    assert names(scanned) == ["vision"]
    assert codes(scanned) == ["scan-failed"]


def test_the_order_of_discovery_changes_nothing(tmp_path: Path) -> None:
    """The file system's order is an accident; pack order is not."""
    for pack in ("zebra", "aten_core", "abacus", "quantization"):
        write_pack(tmp_path, pack)
    write_metadata(tmp_path, "bad-1.0", entry_points=entry_of("bad"))
    distributions = list(importlib_metadata.distributions(path=[str(tmp_path)]))
    expected = scan(distributions).packs

    for seed in range(10):
        random.Random(seed).shuffle(distributions)
        assert scan(distributions).packs == expected


class BytesDistribution(importlib_metadata.Distribution):
    """A distribution whose files are the given bytes, decoded as a file's would be."""

    def __init__(self, **files: bytes) -> None:
        self._files = files

    def read_text(self, filename: str) -> str | None:
        """Returns a metadata file."""
        content = self._files.get(filename.removesuffix(".txt"))
        return None if content is None else content.decode("utf-8")

    def locate_file(self, path: Any) -> Any:
        """Returns where a file of the distribution is."""
        return Path("/nowhere") / path


LINES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"[torchtrt.converters]", b"x = torchtrt_converters_x", b"=", b"[", b"a = b:c", b"# x"]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    entry_points=st.lists(LINES, max_size=6),
    metadata=st.one_of(st.binary(), st.just(metadata_of("x"))),
)
def test_no_content_of_a_metadata_file_stops_the_scan(
    tmp_path: Path, entry_points: list[bytes], metadata: bytes
) -> None:
    """Whatever the bytes, a healthy pack is found and nothing raises."""
    hostile = BytesDistribution(entry_points=b"\n".join(entry_points), METADATA=metadata)
    healthy = BytesDistribution(
        entry_points=entry_of("healthy"), METADATA=metadata_of("torchtrt-converters-healthy")
    )

    assert "healthy" in names(scan([hostile, healthy]))
