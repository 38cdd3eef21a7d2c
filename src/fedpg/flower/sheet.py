"""The status of a federation as one HTML page. Every text is escaped: much of it comes from elsewhere."""

from __future__ import annotations

import datetime
from html import escape

from fedpg.flower import snapshot
from fedpg.flower.curve import curve
from fedpg.flower.page_style import SCRIPT, STYLE
from fedpg.flower.snapshot import Agent, Event, Status
from fedpg.flower.wording import ago, amount, duration, moment, needs_a_look, present, score, size, standing


def html(status: Status, now: float) -> str:
    """The page, as of `now` (UNIX time)."""
    name = f"{status.algorithm} on {status.env}" if status.algorithm else "Federation"
    far = f"{status.round}/{status.rounds} " if status.rounds else ""
    bar = f'<progress max="{status.rounds}" value="{min(status.round, status.rounds)}"></progress>' if status.rounds else ""
    drawn = curve(status.curve)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(far + name)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
<noscript><meta http-equiv="refresh" content="5"></noscript>
</head>
<body>
<p id="lost">The server does not answer any more: this is how it was.</p>
<main>
<h1>{escape(name)}</h1>
<p class="state {escape(status.phase)}">{escape(status.state)}</p>
{bar}
{f'<section><dl class="tiles">{_tiles(status)}</dl></section>' if status.agents else ""}
<section><h2>Return</h2>{drawn or '<p class="none">Nothing has been evaluated yet.</p>'}</section>
<section><h2>Agents</h2>{_agents(status, now)}</section>
<section><h2>Events</h2>{_events(status, now)}</section>
<footer>{_footer(status, now)}</footer>
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _tiles(status: Status) -> str:
    metrics, refused, missed = status.metrics, *(sum(getattr(a, name) for a in status.agents) for name in ("refused", "missed"))
    rows = [
        ("Rounds", str(status.round), f"of {status.rounds}" if status.rounds else ""),
        ("Return", score(metrics.total_return) if metrics else "-", f"worst agent {score(metrics.return_worst)}" if metrics else ""),
        ("Agents", f"{present(status)} of {len(status.agents)}", f"{refused} refused, {missed} missed"),
        ("Environment steps", amount(metrics.env_steps) if metrics else "-", ""),
        ("Numbers up", amount(metrics.floats_up) if metrics else "-", f"{size(status.bytes_received)} received"),
        ("Numbers down", amount(metrics.floats_down) if metrics else "-", f"{size(status.bytes_sent)} sent"),
    ]
    if metrics and metrics.epsilon is not None:
        rows.append(("Epsilon", f"{metrics.epsilon:.3g}", "of an agent that missed no round"))
    return "".join(f"<div><dt>{name}</dt><dd>{value}<small>{small}</small></dd></div>" for name, value, small in rows)


def _agents(status: Status, now: float) -> str:
    if not status.agents:
        return '<p class="none">The server is starting.</p>'
    heads = "".join(f"<th{_right(name)}>{name}</th>" for name in ("Agent", "State", "Last seen", "Accepted", "Refused", "Missed", "Took"))
    rows = "".join(_agent(agent, now) for agent in status.agents)
    return f"<table><thead><tr>{heads}<th>Last problem</th></tr></thead><tbody>{rows}</tbody></table>"


def _right(name: str) -> str:
    return ' class="number"' if name in ("Accepted", "Refused", "Missed", "Took") else ""


def _agent(agent: Agent, now: float) -> str:
    bad = agent.present and agent.outcome == snapshot.REFUSED
    look = "quiet" if agent.seen is None else "work" if agent.at_work else "refused" if bad else "look" if needs_a_look(agent) else ""
    took = "" if agent.seconds is None else duration(agent.seconds)
    counts = "".join(
        f'<td class="number{" some" if value and name != "accepted" else ""}" data-name="{name}">{value}</td>'
        for name, value in (("accepted", agent.accepted), ("refused", agent.refused), ("missed", agent.missed))
    )
    return (
        f'<tr class="{look}"><td data-name="agent">{agent.number}</td><td class="tag">{standing(agent)}</td>'
        f'<td class="seen">{ago(agent.seen, now)}</td>{counts}<td class="number" data-name="took">{took}</td>'
        f'<td class="problem">{escape(agent.problem)}</td></tr>'
    )


def _events(status: Status, now: float) -> str:
    if not status.events:
        return '<p class="none">Nothing out of the ordinary.</p>'
    return f"<ul>{''.join(_event(event, now) for event in reversed(status.events))}</ul>"


def _event(event: Event, now: float) -> str:
    whose = "" if event.agent is None else f"agent {event.agent}: "
    times = f' <span class="times">{event.count} times</span>' if event.count > 1 else ""
    return f"<li><time>{ago(event.when, now)}, {escape(moment(event))}</time>{escape(whose + event.what)}{times}</li>"


def _footer(status: Status, now: float) -> str:
    if not status.changed:
        return "<span>Nothing is known yet.</span>"
    began = datetime.datetime.fromtimestamp(status.began).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return f"<span>server started {began}</span><span>last change {ago(status.changed, now)}</span>"
