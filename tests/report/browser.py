"""Runs a page's script in Chromium, where there is one: what a reader would see."""

from __future__ import annotations

import shutil
import subprocess

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium to run the page's script")


def drawn(page, folder, then=""):
    """The page after its script ran, and `then`, as HTML."""
    file = folder / "page.html"
    file.write_text(f"{page}<script>{then}</script>", encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    command += ["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
