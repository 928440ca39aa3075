from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSS = ROOT / "static" / "css"
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


def test_app_css_is_what_its_parts_say() -> None:
    bundle = runpy.run_path(str(CSS / "bundle.py"))["bundle"]
    assert (CSS / "app.css").read_text("utf-8") == bundle(), "run `make css`"


def test_every_component_file_is_in_the_bundle() -> None:
    served = (CSS / "app.css").read_text("utf-8")
    for part in (CSS / "components").glob("*.css"):
        assert f"/* components/{part.name} */" in served


def test_the_stylesheet_imports_nothing_and_every_file_it_names_exists() -> None:
    served = (CSS / "app.css").read_text("utf-8")
    assert "@import" not in served
    urls = re.findall(r"url\(\"?([^\")]+)", served)
    assert urls
    for url in urls:
        assert (CSS / url).resolve().is_file(), url


def test_templates_hold_no_inline_style_script_or_handler() -> None:
    """The Content-Security-Policy has no unsafe-*: what is inline would silently not work."""
    assert TEMPLATES
    for template in TEMPLATES:
        text = template.read_text("utf-8")
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on", text), template
        for tag in re.findall(r"<script[^>]*>", text):
            assert re.search(r"src=.*nonce=", tag), (template, tag)


def test_every_variable_used_is_defined() -> None:
    served = (CSS / "app.css").read_text("utf-8")
    defined = set(re.findall(r"(--[a-z0-9-]+)\s*:", served))
    used = set(re.findall(r"var\((--[a-z0-9-]+)", served))
    assert used <= defined, used - defined
