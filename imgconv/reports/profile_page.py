"""A profile as one HTML page without other files: profile_page.html with the profile's JSON inside."""

from __future__ import annotations

import json
from pathlib import Path

from imgconv.reports.profile import Profile

TEMPLATE = Path(__file__).parent / "profile_page.html"
PLACE = "/* the profile's JSON */"


def page(profile: Profile) -> str:
    """The page's text. Names in the profile may have any characters."""
    content = json.dumps(profile.to_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside <script> only "<" can end the element, and JSON has "<" only in strings.
    before, found, after = TEMPLATE.read_text(encoding="utf-8").partition(PLACE)
    assert found
    return before + content.replace("<", "\\u003c") + after
