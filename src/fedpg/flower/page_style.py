"""How the status page looks, and the few lines of script that keep it fresh. Both are part of the page; nothing is loaded."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #fff; --ink: #1b1f26; --soft: #667080; --line: #dfe3e9;
  --accent: #2563c9; --good: #1a7f45; --warn: #a15c00; --bad: #bf2c2c; --pale: #eaf1fc }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --card: #1d2128; --ink: #e6e9ee; --soft: #98a2b3; --line: #323944;
  --accent: #7eb0ff; --good: #5fce8d; --warn: #f0b257; --bad: #ff8787; --pale: #24324a } }
* { box-sizing: border-box }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif }
main, #lost { max-width: 1000px; margin: 0 auto; padding: 20px 16px }
h1 { font-size: 1.35rem; margin: 0 0 4px; overflow-wrap: anywhere }
h2 { font-size: 1rem; margin: 0 0 10px }
.state { margin: 0 0 14px; font-weight: 600; color: var(--accent); overflow-wrap: anywhere }
.state.finished { color: var(--good) } .state.waiting, .state.stopped { color: var(--warn) } .state.failed { color: var(--bad) }
progress { appearance: none; width: 100%; height: 8px; margin: 0 0 16px; border: 0; border-radius: 4px; overflow: hidden;
  background: var(--line); display: block }
progress::-webkit-progress-bar { background: var(--line) }
progress::-webkit-progress-value { background: var(--accent) }
progress::-moz-progress-bar { background: var(--accent) }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; margin: 0 0 14px }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px 14px; margin: 0 }
.tiles dt { color: var(--soft); font-size: .85rem }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums }
.tiles small { display: block; font-size: .8rem; font-weight: 400; color: var(--soft) }
.plot { display: grid; grid-template-columns: auto 1fr; gap: 4px 8px; font-size: .8rem; color: var(--soft);
  font-variant-numeric: tabular-nums }
.plot svg { width: 100%; height: 180px; display: block; overflow: visible }
.up { display: flex; flex-direction: column; justify-content: space-between; text-align: right; margin: -.7em 0 }
.along { grid-column: 2; display: flex; justify-content: space-between }
svg * { fill: none; vector-effect: non-scaling-stroke }
.grid { stroke: var(--line) } .mean { stroke: var(--accent); stroke-width: 2; stroke-linejoin: round }
.worst { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 4 3; stroke-linejoin: round }
.last { stroke: var(--accent); stroke-width: 7; stroke-linecap: round }
.key { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 8px 0 0; font-size: .85rem; color: var(--soft) }
.key svg { width: 26px; height: 8px; vertical-align: middle; margin-right: 6px }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 500; font-size: .85rem; color: var(--soft) }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top }
tr:last-child td { border-bottom: 0 }
.number { text-align: right; white-space: nowrap }
.tag { white-space: nowrap; font-weight: 600; color: var(--good) }
.look .tag { color: var(--warn) } .refused .tag { color: var(--bad) } .work .tag { color: var(--accent) } .quiet .tag { color: var(--soft) }
.some { color: var(--bad); font-weight: 600 }
td.problem { color: var(--soft); overflow-wrap: anywhere } td.problem, th:last-child { padding: 6px 0 6px 12px }
ul { list-style: none; margin: 0; padding: 0 }
li { padding: 5px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
li:last-child { border-bottom: 0 }
time { color: var(--soft); margin-right: 6px }
.times { background: var(--pale); border-radius: 8px; padding: 0 7px; font-size: .85rem; white-space: nowrap }
.none, footer { color: var(--soft); margin: 0 } footer { font-size: .85rem; display: flex; flex-wrap: wrap; gap: 2px 18px }
#lost { display: none; color: var(--bad); font-weight: 600; padding-bottom: 0 } .lost #lost { display: block }
.lost main { opacity: .6 }
@media (max-width: 640px) {
  table, tbody { display: block } thead { display: none }
  tr { display: flex; flex-wrap: wrap; gap: 2px 10px; padding: 8px 0; border-bottom: 1px solid var(--line) }
  tr:last-child { border-bottom: 0 }
  td, td.problem { border: 0; padding: 0 }
  td[data-name]::before { content: attr(data-name) " "; color: var(--soft); font-weight: 400 }
  td.number { font-size: .85rem } td:empty { display: none }
  .seen { margin-left: auto } tr::after { content: ""; flex-basis: 100%; order: 1 } td.number { order: 2 }
  .problem { flex-basis: 100%; order: 3 }
}
"""

SCRIPT = """
const again = async () => {
  try {
    if (!document.hidden) {
      const answer = await fetch("", {cache: "no-store"});
      if (!answer.ok) throw answer.status;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.body.classList.remove("lost");
      if (getSelection().isCollapsed) {
        document.title = fresh.title;
        document.querySelector("main").replaceWith(fresh.querySelector("main"));
      }
    }
  } catch { document.body.classList.add("lost"); }
  setTimeout(again, 2000);
};
setTimeout(again, 2000);
"""


def fingerprint(text: str) -> str:
    """What a Content-Security-Policy calls an inline script or style, so that no other is obeyed."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src {fingerprint(SCRIPT)}",
        f"style-src {fingerprint(STYLE)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The page may run its own script and style and ask its own server; nothing else, whatever a text in it says."""
