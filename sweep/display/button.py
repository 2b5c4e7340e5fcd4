"""The button in a notebook's output that stops the sweep: the page asks the Jupyter server to interrupt the kernel."""

from __future__ import annotations

import html
import json
import re
import secrets
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sweep.display.ending import Ending

_FILE_NAME = re.compile(r"kernel-([0-9a-f-]{36})\.json")
_FAILED = "could not be stopped from here: use the notebook's own interrupt button"
_STYLE = (
    "color:inherit;background:none;border:1px solid rgba(128,128,128,.6);border-radius:3px;padding:2px 10px;"
    "margin:0 0 .5em;font:inherit;cursor:pointer"
)
# The output is replaced each second, so what the button says between two frames is a style of the page, which stays.
# A second click on the same button, or soon after another, is one made by mistake: it would kill the trials.
_SCRIPT = """
(async (button, event) => {
  if (event.button) return;
  const key = button.dataset.sweep, id = 'sweep-stop-' + key.split('-')[0];
  let note = document.getElementById(id);
  if (!note) {
    note = document.createElement('style');
    note.id = id;
    document.head.append(note);
  }
  const passed = Date.now() - (note.dataset.at || 0);
  if (passed < (note.dataset.of === key ? 5000 : 1000)) return;
  const say = (words, at) => {
    const it = '[data-sweep="' + key + '"]';
    note.textContent = it + ' span{display:none}' + it + '::after{content:"' + words + '"}';
    note.dataset.of = key;
    note.dataset.at = at;
  };
  say(key.endsWith('-0') ? 'stopping …' : 'killing …', Date.now());
  try {
    const config = JSON.parse((document.getElementById('jupyter-config-data') || {}).textContent || '{}');
    const base = (config.baseUrl || document.body.dataset.baseUrl || '/').replace(/\\/*$/, '/');
    const token = (document.cookie.match(/(?:^|; *)_xsrf=([^;]*)/) || [])[1];
    const answer = await fetch(base + 'api/kernels/' + button.dataset.kernel + '/interrupt', {
      method: 'POST',
      credentials: 'same-origin',
      headers: token ? {'X-XSRFToken': decodeURIComponent(token)} : {},
    });
    if (!answer.ok) throw new Error(answer.status);
  } catch (error) {
    say(FAILED, 0);
  }
})(this, event)
""".replace("FAILED", json.dumps(_FAILED))
_ON_PRESS = html.escape(re.sub(r"\s*\n\s*", " ", _SCRIPT).strip())


def is_in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def kernel_id() -> str:
    """Return the id that the Jupyter server has for this kernel; empty: no server has started it.

    A server names the file with the kernel's connection after that id; other programs that start kernels do not.
    """
    connect = sys.modules.get("ipykernel.connect")
    if connect is None:
        return ""
    try:
        path = connect.get_connection_file()
    except RuntimeError:  # the kernel is embedded in another program
        return ""
    found = _FILE_NAME.fullmatch(Path(path).name)
    return found[1] if found else ""


def stop_button(ending: Ending | None) -> Callable[[], str] | None:
    """Return what writes the button of a sweep that this thread drives; None where it would reach nobody.

    An interrupt is heard by the main thread only.
    """
    kernel = kernel_id() if threading.current_thread() is threading.main_thread() else ""
    return partial(button_html, kernel, ending, secrets.token_hex(4)) if kernel and ending is not None else None


def button_html(kernel: str, ending: Ending, run: str) -> str:
    """Return the button as it is now, empty where there is nothing to offer; `run` tells those of sweeps apart."""
    offer = ending.offer()
    if not offer:
        return ""
    # It listens to presses, as it may be replaced before it is let go of; a click by the keyboard has no detail.
    return (
        f'<button type="button" data-kernel="{kernel}" data-sweep="{run}-{ending.times}" '
        f'style="{_STYLE}" onmousedown="{_ON_PRESS}" onclick="if (!event.detail) this.onmousedown(event)">'
        f"<span>{html.escape(offer)}</span></button>"
    )
