/* SPDX-License-Identifier: MIT */
"use strict";
(function () {
	const every = 2000, patience = 10000;
	let shown = performance.now(), failed = "", timer = 0, busy = false;
	const byId = (id) => document.getElementById(id);

	function span(ms) {
		const s = Math.max(0, Math.floor(ms / 1000));
		if (s < 60) return s + " s";
		if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
		if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s / 60) % 60 + " min";
		return Math.floor(s / 86400) + " d " + Math.floor(s / 3600) % 24 + " h";
	}

	function say(element, text) {
		if (element.textContent !== text) element.textContent = text;
	}

	/* Everything that is shown grows older, whether the page can be refreshed or not. */
	function tick() {
		const past = performance.now() - shown;
		for (const e of document.querySelectorAll("[data-age]")) say(e, span(Number(e.dataset.age) + past));
		document.body.classList.toggle("stale", failed !== "");
		byId("stale").hidden = failed === "";
		say(byId("why"), failed);
		say(byId("stale-age"), span(past));
	}

	async function load() {
		const asked = performance.now();
		const answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(patience)});
		if (!answer.ok) throw new Error("the answer was " + answer.status);
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		const ids = ["asof", "session", "names", "changes"];
		if (!byId("summary") || ids.some((id) => !page.getElementById(id))) throw new Error("the answer was another page");
		for (const id of ids) byId(id).replaceWith(document.adoptNode(page.getElementById(id)));
		say(byId("summary"), page.getElementById("summary").textContent);
		shown = asked;
	}

	async function refresh() {
		if (busy) return;
		busy = true;
		clearTimeout(timer);
		if (!document.getSelection().isCollapsed) {
			failed = "Not refreshed while text is selected.";
		} else {
			try {
				await load();
				failed = "";
			} catch (err) {
				failed = "This page cannot be refreshed: " + (err.name === "TimeoutError" ? "no answer" : err.message) + ".";
			}
		}
		busy = false;
		tick();
		timer = setTimeout(next, every);
	}

	/* A page that nobody looks at asks for nothing. */
	function next() {
		if (!document.hidden) refresh();
	}
	document.addEventListener("visibilitychange", next);
	setInterval(tick, 1000);
	timer = setTimeout(next, every);
})();
