"""The style sheet and the script of the HTML page.

The content security policy of the page admits them by their digests, so a change of any byte changes the
policy. The script only filters findings; the page is complete without it.
"""

STYLE = """
:root { --page:#fbfaf7; --ink:#1d2126; --dim:#5d646e; --line:#dcd9d0; --panel:#fff; --code:#f3f1eb;
  --link:#1a5fb4; --error:#b3261e; --warning:#96590a; --unknown:#6a4bb0; --note:#1a6f8f; --ok:#2a7449;
  --none:#5d646e; --error-bg:#fcefec; --warning-bg:#fbf3e2; --unknown-bg:#f3effb; --note-bg:#eaf4f8;
  --ok-bg:#ebf5ee; --none-bg:#f1f0ec; --on:#fff; }
@media (prefers-color-scheme: dark) {
  :root { --page:#15171b; --ink:#e7e6e3; --dim:#a3a9b2; --line:#353941; --panel:#1d2025; --code:#262a31;
    --link:#8ab8f5; --error:#f2857b; --warning:#efb45c; --unknown:#b9a2f2; --note:#7cc4e0; --ok:#79c99a;
    --none:#a3a9b2; --error-bg:#361e1c; --warning-bg:#33270f; --unknown-bg:#272040; --note-bg:#152c37;
    --ok-bg:#162c20; --none-bg:#24272d; --on:#15171b; }
}
* { box-sizing:border-box; }
html { scroll-padding-top:16px; -webkit-text-size-adjust:100%; }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui,sans-serif;
  overflow-wrap:anywhere; }
header, main, footer { max-width:1240px; margin:0 auto; padding:0 24px; }
.error { --tone:var(--error); --tint:var(--error-bg); }
.warning { --tone:var(--warning); --tint:var(--warning-bg); }
.unknown { --tone:var(--unknown); --tint:var(--unknown-bg); }
.note { --tone:var(--note); --tint:var(--note-bg); }
.ok { --tone:var(--ok); --tint:var(--ok-bg); }
.none { --tone:var(--none); --tint:var(--none-bg); }
header { padding-top:26px; padding-bottom:4px; }
.brand { margin:0 0 6px; color:var(--dim); font-size:.86rem; letter-spacing:.02em; }
.target { border:1px solid var(--line); border-radius:99px; padding:1px 9px; margin-left:6px; }
h1 { display:flex; gap:12px; align-items:center; margin:0; font-size:clamp(1.35rem,3.4vw,1.95rem);
  line-height:1.2; letter-spacing:-.015em; text-wrap:balance; }
h1 .mark { flex:none; display:grid; place-items:center; width:1.55em; height:1.55em; border-radius:50%;
  background:var(--tone); color:var(--on); font-size:.72em; }
.subject, .count { margin:8px 0 0; color:var(--dim); overflow-wrap:anywhere; }
.count { font-size:.9rem; margin-top:3px; }
code, pre, th, .because td, .all td { font-family:ui-monospace,monospace; font-size:.84em; }
code { overflow-wrap:anywhere; }
h1 code, h3 code { font-weight:600; }
a { color:var(--link); overflow-wrap:anywhere; }
:focus-visible { outline:3px solid var(--link); outline-offset:2px; border-radius:4px; }
h2 { font-size:1.12rem; margin:34px 0 12px; letter-spacing:-.01em; }
figure { margin:20px 0 0; }
figcaption { color:var(--dim); font-size:.8rem; margin-top:2px; }
svg { display:block; width:100%; height:auto; }
svg.tall { display:none; max-width:380px; margin:0 auto; }
svg text { font:12.5px system-ui,sans-serif; fill:var(--ink); }
svg .name { font:600 14px system-ui,sans-serif; }
.node rect { fill:var(--panel); stroke:var(--line); stroke-width:1.5; }
.node.open rect { fill:none; stroke-dasharray:4 4; }
.node.open .name { fill:var(--dim); }
.node.error rect, .node.warning rect, .node.unknown rect, .node.note rect { stroke:var(--tone);
  stroke-width:2; fill:var(--tint); }
.link { fill:none; stroke:var(--dim); stroke-width:2; }
.link.open { stroke:var(--line); stroke-dasharray:2 5; stroke-linecap:round; }
.link.error, .link.warning, .link.unknown, .link.note { stroke:var(--tone); stroke-width:2.5;
  stroke-dasharray:7 5; }
svg a circle { fill:var(--tone); stroke:var(--page); stroke-width:2.5; }
svg a .sign { fill:var(--on); font:700 13px system-ui,sans-serif; text-anchor:middle; }
svg a:hover circle, svg a:focus-visible circle { stroke:var(--ink); }
.unseen { position:absolute; width:1px; height:1px; overflow:hidden; clip-path:inset(50%);
  white-space:nowrap; margin:0; padding:0; }
.overview dl { margin:18px 0 0; border:1px solid var(--line); border-radius:10px; background:var(--panel);
  overflow:hidden; }
.overview dl > div { display:grid; grid-template-columns:150px minmax(0,1fr); border-top:1px solid
  var(--line); }
.overview dl > div:first-child { border-top:0; }
.overview dt { padding:8px 12px 8px 14px; font-weight:600; font-size:.92rem; }
.overview dd { margin:0; padding:8px 14px 8px 0; font-size:.92rem; overflow-wrap:anywhere; }
.overview .mark { display:inline-block; width:1.5em; color:var(--tone); font-weight:700; }
#filter { display:flex; flex-wrap:wrap; gap:8px; align-items:center; margin:0 0 14px; }
#filter[hidden] { display:none; }
#filter input[type=search] { font:inherit; color:inherit; background:var(--panel); border:1px solid
  var(--line); border-radius:8px; padding:7px 11px; min-height:38px; flex:1 1 220px; max-width:340px; }
#filter label { display:inline-flex; gap:6px; align-items:center; min-height:38px; padding:0 12px;
  border:1px solid var(--line); border-radius:99px; color:var(--tone); background:var(--panel);
  font-size:.88rem; cursor:pointer; }
#filter label input { accent-color:var(--tone); margin:0; }
#left { color:var(--dim); font-size:.88rem; }
article { border:1px solid var(--line); border-left:4px solid var(--tone); border-radius:10px;
  background:var(--panel); margin:0 0 10px; }
article[hidden] { display:none; }
article:target { box-shadow:0 0 0 3px var(--tone); }
article summary { padding:12px 18px; list-style:none; position:relative; padding-right:40px;
  font-weight:400; }
article summary::-webkit-details-marker { display:none; }
article summary::after { content:""; position:absolute; right:18px; top:18px; width:8px; height:8px;
  border:solid var(--dim); border-width:0 2px 2px 0; rotate:45deg; }
article details[open] > summary::after { rotate:225deg; top:22px; }
article details > :not(summary) { margin-left:18px; margin-right:18px; }
article details[open] { padding-bottom:14px; }
article h3 { display:inline; font-size:1.03rem; line-height:1.45; overflow-wrap:anywhere; }
.pill { display:inline-block; background:var(--tint); color:var(--tone); border-radius:99px; padding:1px
  10px; font-size:.8rem; font-weight:600; margin-right:6px; white-space:nowrap; }
.id { margin-block:-4px 0; color:var(--dim); font-size:.9rem; }
table { border-collapse:collapse; }
caption { text-align:left; }
.because { width:calc(100% - 36px); margin-block:12px 4px; background:var(--code); border-radius:8px; }
.because caption, .details dt { color:var(--dim); font-size:.82rem; padding:0 0 3px; font-weight:400; }
.because th, .because td { text-align:left; font-weight:400; padding:3px 12px; vertical-align:top;
  overflow-wrap:anywhere; }
.because tr:first-child > * { padding-top:9px; }
.because tr:last-child > * { padding-bottom:9px; }
.because th { width:30%; }
.because td:nth-child(2) { width:30%; font-weight:600; }
.source { color:var(--dim); }
.details { margin-block:10px 0; }
.at { margin-block:8px 0; color:var(--dim); }
.at pre { white-space:pre; color:var(--ink); }
.details > div { display:grid; grid-template-columns:74px minmax(0,1fr); gap:2px 10px; padding:4px 0; }
.details dt { padding-top:2px; }
.details dd { margin:0; min-width:0; }
.details p { margin:0; overflow-wrap:anywhere; }
.details .known p { font-size:.86rem; color:var(--dim); }
.details .why p { max-width:86ch; }
pre { margin:5px 0 3px; background:var(--code); border-radius:8px; padding:8px 12px; overflow-x:auto;
  white-space:pre-wrap; overflow-wrap:anywhere; user-select:all; }
.fine { border:1px solid var(--line); border-left:4px solid var(--tone); border-radius:10px;
  background:var(--panel); margin:0; padding:12px 18px; }
.waiting { color:var(--dim); font-size:.9rem; margin-top:22px; overflow-wrap:anywhere; }
.waiting p { margin:0; }
.waiting ul { margin:4px 0 0; padding-left:20px; }
.all { margin:14px 0 0; border:1px solid var(--line); border-radius:10px; background:var(--panel); }
.all + .all { margin-top:10px; }
.all[open] > summary { border-bottom:1px solid var(--line); }
summary { cursor:pointer; padding:10px 16px; font-weight:600; }
.dim { color:var(--dim); font-weight:400; }
.all > p { padding:0 16px; }
.scroll { overflow-x:auto; }
.all table, .plan { width:100%; }
.all th, .all td { text-align:left; font-weight:400; padding:4px 16px; border-top:1px solid var(--line);
  vertical-align:top; overflow-wrap:anywhere; }
.all tr:first-child > * { border-top:0; }
.plan { border:1px solid var(--line); background:var(--panel); }
.plan th, .plan td { text-align:left; padding:7px 12px; border-top:1px solid var(--line);
  vertical-align:top; font-size:.88rem; }
.plan thead th { color:var(--dim); font:inherit; font-size:.82rem; border-top:0; }
footer { color:var(--dim); font-size:.8rem; padding-top:26px; padding-bottom:34px; overflow-wrap:anywhere;
  }
@media (max-width:820px) {
  header, main, footer { padding-left:16px; padding-right:16px; }
  svg.wide { display:none; }
  svg.tall { display:block; }
  .overview dl > div { grid-template-columns:1fr; }
  .overview dt { padding-bottom:0; }
  .overview dd { padding:0 14px 9px calc(14px + 1.5em); }
  .because, .because tbody, .because tr, .because th, .because td, .because caption { display:block;
    width:auto !important; }
  .because { background:none; }
  .because tbody { background:var(--code); border-radius:8px; }
  .because th { padding-bottom:0; }
  .because tr > * { padding-top:0 !important; padding-bottom:0 !important; }
  .because tr { padding:7px 0; }
  .details > div { grid-template-columns:1fr; }
}
@media (prefers-reduced-motion: no-preference) {
  html { scroll-behavior:smooth; }
}
@media print {
  :root { --page:#fff; --ink:#000; --dim:#444; --line:#bbb; --panel:#fff; --code:#f4f4f4; --link:#000;
    --error:#a3150e; --warning:#7a4600; --unknown:#51348f; --note:#0b5570; --ok:#1c5c37; --none:#444;
    --error-bg:#fdf1ef; --warning-bg:#fcf5e6; --unknown-bg:#f5f1fc; --note-bg:#eef6f9; --ok-bg:#eff7f1;
    --none-bg:#f4f4f4; --on:#fff; }
  body { font-size:11px; -webkit-print-color-adjust:exact; print-color-adjust:exact; }
  header, main, footer { max-width:none; padding:0; }
  #filter, .all { display:none !important; }
  svg.wide { display:block; }
  svg.tall { display:none; }
  article, figure, .overview { break-inside:avoid; }
  article { box-shadow:none !important; }
  a { text-decoration:none; }
  article details::details-content { content-visibility:visible; display:block; }
  article summary::after { display:none; }
}
"""

SCRIPT = """
"use strict";
(() => {
  const form = document.getElementById("filter");
  if (!form) return;
  const articles = [...document.querySelectorAll("article")], left = document.getElementById("left");
  const words = articles.map((each) => each.textContent.toLowerCase());
  const apply = () => {
    const asked = form.q.value.toLowerCase().split(/\\s+/).filter(Boolean);
    const marks = new Set([...form.querySelectorAll("[name=mark]:checked")].map((each) => each.value));
    let shown = 0;
    articles.forEach((each, i) => {
      each.hidden = !marks.has(each.dataset.mark) || !asked.every((word) => words[i].includes(word));
      shown += !each.hidden;
    });
    left.textContent = shown === articles.length ? "" : `${shown} / ${articles.length}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  // A link of the picture leads to a finding that may be filtered away.
  addEventListener("hashchange", () => {
    const wanted = document.getElementById(location.hash.slice(1));
    if (wanted && wanted.hidden) { form.reset(); apply(); wanted.scrollIntoView(); }
  });
  form.hidden = false;
  apply();
})();
"""
