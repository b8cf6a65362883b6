"""The files of the page at /, and how it is served."""

import gzip
import hashlib
import re
import struct

import pytest
from harness import ROOT

NEEDS_SOCKET = False
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def ask(server):
    session = server.session()
    return lambda path, method="GET", **headers: session.request(method, server.base + path, headers=headers)


def test_the_page_can_be_installed_and_has_an_icon(ask):
    page = ask("/", **BROWSER).text
    linked = dict(re.findall(r'<link rel="([\w-]+)" href="(.+?)"', page))
    manifest = ask(linked["manifest"]).json()
    assert (manifest["start_url"], manifest["display"]) == ("../../", "standalone")
    assert ask(f"/static/x/{manifest['icons'][0]['src']}").headers["Content-Type"].startswith("image/svg+xml")
    at_home = ask(linked["apple-touch-icon"])
    assert at_home.headers["Content-Type"] == "image/png"
    assert at_home.content[16:24] == struct.pack(">II", 180, 180)  # iOS takes no SVG
    colours = re.findall(r'<meta name="theme-color" content="(.+?)"', page)
    tokens = re.search(r"--page: light-dark\((.*?), (.*?)\)", (ROOT / "static" / "page.css").read_text())
    assert colours == list(tokens.groups())


def test_what_is_no_browser_gets_the_addresses_in_a_few_lines(ask):
    answer = ask("/")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"
    for address in ("/", "/api/v1/docs", "/api/v1/health"):
        assert re.search(f" http://127.0.0.1:8000{address}$", answer.text, re.MULTILINE)
    assert answer.text.count("\n") < 7


def test_a_browser_gets_a_page_that_loads_nothing_from_elsewhere_and_no_inline_code(ask):
    answer = ask("/", **BROWSER, **{"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    page = gzip.decompress(answer.content).decode()
    assert not re.search(r"<style|<script>| style=| on\w+=", page)
    assert 'translate="no"' in page  # translated texts would not change with the data
    assert not re.search(r'(?:src|href)="(?!/|data:|#)', page)
    assert ask("/", "HEAD", **BROWSER).status_code == 200
    refused = ask("/", "POST")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("sent", "encoding"),
    [
        ({"X-Requested-With": "page", "Accept-Encoding": "br, gzip"}, "gzip"),
        ({"X-Requested-With": "page", "Accept-Encoding": "gzip;q=0"}, None),
        ({"Accept-Encoding": "gzip"}, None),
    ],
)
def test_the_page_gets_its_lists_compressed_and_programs_do_not(ask, owner, project, sent, encoding):
    owner.make("/tasks", {"project_id": project["id"], "title": "Posters", "description": "A4. " * 300})
    answer = ask("/api/v1/tasks", Authorization=f"Bearer {owner.key}", **sent)
    assert answer.headers.get("Content-Encoding") == encoding
    content = gzip.decompress(answer.content) if encoding else answer.content
    assert b'"title":"Posters"' in content


def test_its_files_are_kept_by_browsers_until_any_of_them_has_changed(ask):
    (folder,) = set(re.findall(r'(?:src|href)="(/static/\w{16}/)', ask("/", **BROWSER).text))
    for file in (ROOT / "static").iterdir():
        for encoding in ("gzip", "identity"):
            answer = ask(folder + file.name, **{"Accept-Encoding": encoding})
            packed = encoding == "gzip" and file.suffix in (".js", ".css")
            assert answer.headers.get("Content-Encoding") == ("gzip" if packed else None)
            assert (gzip.decompress(answer.content) if packed else answer.content) == file.read_bytes()
            assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
            assert answer.headers["Vary"] == "Accept-Encoding"
    of_before = f"/static/{'0' * 16}/page.js"  # which an open page may still ask for
    assert ask(of_before).headers["Cache-Control"] == "no-cache"
    for name in ("", "nothing.js", "..%2Fapp.py", "%2Fetc%2Fpasswd", "x/y.js"):
        assert ask(folder + name).status_code == 404


def test_no_two_modules_of_the_page_define_one_name():
    defined = r"(\w+|[\[{].+?[\]}])"
    declared = re.compile(rf"^(?:export )?(?:async )?(?:const|let|function|class) {defined} ?[=({{e]", re.M)
    modules = {}
    for file in (ROOT / "static").glob("*.js"):
        if file.name not in ("preact.js", "marked.js"):
            for names in declared.findall(file.read_text()):
                for name in re.findall(r"\w+(?=[ ,\]}]|$)", names):
                    modules.setdefault(name, set()).add(file.name)
    assert {"Form", "workspaceName", "localDay", "CallError"} <= modules.keys()
    assert {name: files for name, files in modules.items() if len(files) > 1} == {}


def test_what_it_has_from_others_is_unchanged_and_has_the_texts_of_its_licences_beside_it():
    vendored = (ROOT / "static" / "VENDORED.md").read_text()
    files = re.findall(r"^\| `(.+?)` .* `(\w{64})` \|$", vendored, re.MULTILINE)
    assert [name for name, _ in files] == ["preact.js", "marked.js", "inter.woff2"]
    for name, digest in files:
        assert hashlib.sha256((ROOT / "static" / name).read_bytes()).hexdigest() == digest
    for name in ("preact", "htm", "marked", "inter"):
        assert "License" in (ROOT / "static" / f"LICENSE-{name}.txt").read_text()
