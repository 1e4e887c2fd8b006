"""`mldyno report --site`: what it writes, what it replaces, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.site import made_machines

from mldyno import api
from mldyno.results import Results
from mldyno.store import Store
from mldyno.views.site import pages as site_pages

Mldyno = Callable[..., tuple[int, str, str]]


@pytest.fixture
def filled(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with two machines, and a folder of one's own."""
    monkeypatch.chdir(tmp_path)
    store.append(made_machines.records(2))
    return store


def test_a_site_of_all_machines_and_of_published_ones(filled: Store, mldyno: Mldyno) -> None:
    code, out, err = mldyno("report", "--site", "public")
    assert (code, out) == (0, "public/index.html\n")
    assert "records of 2 machines" in err
    index = Path("public/index.html").read_text()
    assert "Example Xeon 0, 4 cores" in index
    assert "NVIDIA V100 SXM2 16GB" in index
    assert not Path("report.html").exists()


@pytest.mark.parametrize("option", ["--site", "--card", "--out"])
def test_a_home_that_no_shell_expanded_is_the_home(
    option: str, filled: Store, mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    code, out, err = mldyno("report", "mlp", option, "~/mine")
    assert code == 0, err
    assert out.startswith(str(tmp_path / "home" / "mine"))
    assert (tmp_path / "home" / "mine").exists()
    assert not Path("~").exists()
    code, _, err = mldyno("report", option, "~no-such-user/mine")
    assert code == 2
    assert "that user has no home folder here" in err


def test_a_word_takes_less_and_a_report_beside_it_is_asked_for(filled: Store, mldyno: Mldyno) -> None:
    code, out, _ = mldyno("report", "mlp/train", "--site", "public", "--out", "page.html", "--json")
    assert (code, json.loads(out)) == (0, {"written": ["public/index.html", "page.html"]})
    assert [path.name[:8] for path in Path("public/work").iterdir()] == ["mlp-trai"]


def test_an_old_site_is_replaced_and_a_folder_of_others_is_not(filled: Store, mldyno: Mldyno) -> None:
    assert mldyno("report", "mlp", "--site", "public")[0] == 0
    assert mldyno("report", "resnet18", "--site", "public")[0] == 0
    assert all(path.name.startswith("resnet") for path in Path("public/work").iterdir())
    Path("public/CNAME").write_text("example.org")
    code, _, err = mldyno("report", "--site", "public")
    assert (code, err) == (1, "mldyno: public holds CNAME, which mldyno did not put there; name another folder.\n")


def test_ctrl_c_leaves_the_old_site_and_no_half_of_a_new_one(
    filled: Store, mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mldyno("report", "mlp", "--site", "public")
    before = sorted(path.name for path in Path("public/work").iterdir())

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(site_pages, "_machine", interrupted)
    assert mldyno("report", "--site", "public")[0] == 3
    assert sorted(path.name for path in Path("public/work").iterdir()) == before
    assert not list(tmp_path.glob(".mldyno*"))


def test_fake_records_are_in_no_site(
    fake_run: Callable[..., Results], mldyno: Mldyno, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fake_run("mlp", mode="infer")
    code, _, err = mldyno("report", "--site", "public")
    assert code == 0
    assert err.splitlines()[-1] == "left out: 1 fake record, of which no time is real"
    assert "test bench" not in Path("public/index.html").read_text()
    code, _, err = mldyno("report", "framework=fake", "--site", "other")
    assert (code, err.startswith("mldyno: nothing real is recorded for 'framework=fake'")) == (1, True)
    assert not Path("other").exists()


def test_private_leaves_command_lines_out(filled: Store, mldyno: Mldyno) -> None:
    api.run_plan(api.command_plan(["sh", "-c", "exit 0 # hush"], {"steps": 2, "repeats": 1}), filled)
    mldyno("report", "--site", "open")
    mldyno("report", "--site", "closed", "--private")
    texts = {place: "".join(path.read_text() for path in Path(place).rglob("*.html")) for place in ("open", "closed")}
    assert "hush" in texts["open"]
    assert "hush" not in texts["closed"]
    assert "private command" in texts["closed"]
