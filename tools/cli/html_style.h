// SPDX-License-Identifier: Apache-2.0
// The style of the pages of html_page.h, light or dark as the reader's system is.
#pragma once

#include <string_view>

namespace pagefuse::tools {

inline constexpr std::string_view kHtmlStyle = R"(
:root { color-scheme: light dark; --text: #1f2328; --dim: #57606a; --back: #fff; --panel: #f6f8fa; --line: #d0d7de; --link: #0550ae;
  --bad: #82071e; --bad-back: #ffebe9; --good-back: #dafbe1; --good-line: #2da44e; --mark: #fff3b0; --bar: #b6d4fe;
  --line0: #0550ae; --line1: #bc4c00; --line2: #1a7f37; --line3: #8250df; --line4: #bf3989; --line5: #6e5c00; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --dim: #9da7b3; --back: #0d1117; --panel: #161b22; --line: #3b434d; --link: #79b8ff;
  --bad: #ffc1ba; --bad-back: #5a1e1e; --good-back: #12361f; --good-line: #3fb950; --mark: #4d3f06; --bar: #1f3d66;
  --line0: #79b8ff; --line1: #ffa657; --line2: #56d364; --line3: #d2a8ff; --line4: #ff9bce; --line5: #e3b341; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; margin: 0 auto; max-width: 76em; padding: 0 1.5em 4em; color: var(--text); background: var(--back); }
nav { position: sticky; top: 0; background: var(--back); border-bottom: 1px solid var(--line); padding: .6em 0; display: flex; flex-wrap: wrap; gap: .2em 1.2em; z-index: 1; }
h1 { font-size: 1.5em; overflow-wrap: anywhere; margin: .8em 0 .4em; } h2 { font-size: 1.2em; margin: 1.8em 0 .5em; } h3 { font-size: 1em; margin: 1.2em 0 .3em; }
h2, [id] { scroll-margin-top: 3.5em; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 14px; margin: .4em 0; }
th { text-align: left; font-weight: 600; } tr { border-bottom: 1px solid var(--line); } td, th { padding: .25em .8em .25em 0; vertical-align: top; }
thead th { color: var(--dim); font-weight: 500; vertical-align: bottom; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bad { color: var(--bad); background: var(--bad-back); } td.bad { padding-left: .4em; padding-right: .4em; }
td.share { width: 9em; background: linear-gradient(var(--bar) 0 0) no-repeat 0 50% / calc(var(--part) * 1%) 70%; text-align: right; font-variant-numeric: tabular-nums; }
.rest, .note { color: var(--dim); }
pre, code { font: 12.5px/1.55 ui-monospace, "DejaVu Sans Mono", monospace; } pre { overflow-x: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .8em; }
table.sides { table-layout: fixed; width: 100%; } table.sides td { overflow-wrap: anywhere; }
code { overflow-wrap: anywhere; }
:target { background: var(--mark); } details { margin: .5em 0; } summary { cursor: pointer; }
details.left { border: 1px solid var(--line); border-left: 4px solid var(--bad); border-radius: 6px; padding: .5em .9em; background: var(--panel); }
details.left p { margin: .5em 0; }
svg line { stroke: var(--dim); stroke-opacity: .55; } svg rect { fill: var(--panel); stroke: var(--dim); } svg .fused rect { fill: var(--good-back); stroke: var(--good-line); }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; text-anchor: middle; fill: var(--text); }
caption { text-align: left; color: var(--dim); padding: .2em 0; }
tbody th { font-weight: 500; } td.short { white-space: nowrap; } td.share + td { padding-left: .8em; }
.aloud, .skip { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.skip:focus { position: fixed; top: .5em; left: .5em; width: auto; height: auto; clip-path: none; padding: .4em .8em; background: var(--panel); z-index: 2; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
svg.chart { max-width: 100%; height: auto; } svg.chart text.begin { text-anchor: start; } svg.chart text.end { text-anchor: end; }
svg.chart line { stroke: var(--line); stroke-opacity: 1; }
svg.chart polyline { fill: none; stroke-width: 2.5; } svg.chart circle { stroke: none; }
.line0 { stroke: var(--line0); fill: var(--line0); } .line1 { stroke: var(--line1); fill: var(--line1); stroke-dasharray: 9 4; }
.line2 { stroke: var(--line2); fill: var(--line2); stroke-dasharray: 3 3; } .line3 { stroke: var(--line3); fill: var(--line3); stroke-dasharray: 14 4 3 4; }
.line4 { stroke: var(--line4); fill: var(--line4); stroke-dasharray: 6 6; } .line5 { stroke: var(--line5); fill: var(--line5); stroke-dasharray: 1 4; }
figure { margin: .8em 0; } figcaption { font-weight: 600; }
)";

}  // namespace pagefuse::tools
