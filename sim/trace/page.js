"use strict";
const $ = id => document.getElementById(id);
async function load() {
  const raw = Uint8Array.from(atob($("data").textContent.trim()), c => c.charCodeAt(0));
  $("data").remove();
  const s = new Response(raw).body.pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(s).text());
}
const GUTTER = 190, ROW = 17, HEAD = 20, MARGIN = 8;
const KIND = { get:"read", scan:"read", peek:"read", GET:"read", STAT:"read", LIST:"read", commit:"commit", PUT:"put", DELETE:"del",
  "open-session":"session", "keep-alive":"session", "close-session":"session", sleep:"wait", wait:"wait" };
const LEGEND = [["read","read"],["commit","commit"],["put","PUT"],["del","DELETE"],["session","session"],["wait","sleep, wait"],["bad","failed, killed, finding"],["fault","fault"],["mark","verdict, branch"]];
const HUES = ["#4c78d0","#e07b39","#3a9d6e","#c0487f","#8a63d2","#b59a1b","#2a9fb0","#a0603a","#7a8799","#d0434f"];

load().then(start, e => { $("verdict").textContent = "This page could not be read: " + e; });

function start(D) {
  const S = D.S, N = D.T.length;
  const time = new Float64Array(N + 1);
  for (let i = 0, t = 0; i < N; i++) { t += D.T[i]; time[i] = t; }
  time[N] = N ? time[N-1] : 0;
  const calls = D.calls, points = D.points, changes = D.changes, tasks = D.tasks;
  const callByStep = new Map(); calls.forEach((c, i) => callByStep.set(c[2], i));

  // Rows: a heading for each node, then its lanes in the order in which they were first used.
  const nodes = [...new Set(D.lanes.map(l => l[0]))].sort((a, b) => S[a] < S[b] ? -1 : 1);
  const rows = [], rowOf = new Int32Array(D.lanes.length), span = new Map();
  for (const n of nodes) {
    const from = rows.length;
    rows.push({ head: S[n] === "" ? "clients" : "node " + S[n] });
    D.lanes.forEach((l, i) => { if (l[0] === n) { rowOf[i] = rows.length; rows.push({ name: S[l[1]], lane: i }); } });
    span.set(n, [from, rows.length]);
  }
  const rowOfCall = c => c[0] < 0 ? -1 : rowOf[tasks[c[0]][2]];
  const byRow = rows.map(() => []);
  calls.forEach((c, i) => { const r = rowOfCall(c); if (r >= 0) byRow[r].push(i); });
  const pauses = [];
  { const open = new Map();
    for (const p of points) {
      const k = S[p[1]];
      if (k === "pause") open.set(p[3], p[0]);
      else if ((k === "resume" || k === "kill") && open.has(p[3])) { pauses.push([p[3], open.get(p[3]), p[0]]); open.delete(p[3]); }
    }
    for (const [n, x] of open) pauses.push([n, x, N]);
  }

  // The view: [a, b) on the axis, in events or in microseconds, and the first row that is seen.
  // Where each row stands: of a compact view only those of tasks that are in it.
  let vis = rows.map((_, i) => i), at = Int32Array.from(vis);
  function layout() {
    if (V.compact) {
      const used = new Uint8Array(rows.length);
      for (const t of tasks) if (pos(t[3]) < V.b && (t[4] < 0 || pos(t[4]) > V.a)) used[rowOf[t[2]]] = 1;
      vis = rows.map((_, i) => i).filter(i => rows[i].head || used[i]);
    } else vis = rows.map((_, i) => i);
    at.fill(-1); vis.forEach((r, i) => at[r] = i);
  }
  const extent = n => { const s = span.get(n); if (!s) return null; let last = s[0]; for (let r = s[0]; r < s[1]; r++) if (at[r] >= 0) last = r; return [at[s[0]], at[last] + 1]; };
  const V = { compact: true, byTime: false, a: 0, b: N, top: 0, sel: null, filter: "", match: null, matches: [], at: -1, hidden: new Set() };
  const full = () => V.byTime ? Math.max(time[N], 1) : Math.max(N, 1);
  const pos = x => V.byTime ? time[Math.min(x, N)] : x;
  const c = $("c"), g = $("g"), cx = c.getContext("2d"), gx = g.getContext("2d");
  let W = 0, H = 0, GW = 0, GH = 0, col = {};
  const px = x => GUTTER + (pos(x) - V.a) / (V.b - V.a) * (W - GUTTER - MARGIN);
  const axisAt = p => V.a + (p - GUTTER) / (W - GUTTER - MARGIN) * (V.b - V.a);
  function indexAt(v) { // the event nearest below an axis value
    if (!V.byTime) return Math.max(0, Math.min(N - 1, Math.floor(v)));
    let lo = 0, hi = N;
    while (lo < hi) { const m = (lo + hi) >> 1; if (time[m] <= v) lo = m + 1; else hi = m; }
    return Math.max(0, lo - 1);
  }

  let asked = false;
  const draw = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paint(); chart(); }); } };
  function palette() {
    const st = getComputedStyle(document.documentElement);
    for (const k of ["bg","panel","ink","dim","line","band","task","read","commit","put","del","session","wait","bad","fault","mark","sel","held","paused"]) col[k] = st.getPropertyValue("--" + k).trim();
  }
  function resize() {
    const r = devicePixelRatio || 1;
    for (const e of [c, g]) { const b = e.parentElement.getBoundingClientRect(); e.width = Math.max(1, Math.round(b.width * r)); e.height = Math.max(1, Math.round(b.height * r)); }
    W = c.width / r; H = c.height / r; GW = g.width / r; GH = g.height / r;
    cx.setTransform(r, 0, 0, r, 0, 0); gx.setTransform(r, 0, 0, r, 0, 0);
    clamp(); paint(); chart(); // at once: a canvas is empty after it was resized
  }
  function clamp() {
    const f = full(), least = V.byTime ? 10 : 4;
    let w = Math.max(least, Math.min(V.b - V.a, f));
    if (V.a < 0) V.a = 0;
    if (V.a + w > f) V.a = Math.max(0, f - w);
    V.b = V.a + w;
    layout();
    V.top = Math.max(0, Math.min(V.top, vis.length * ROW - (H - HEAD)));
  }
  const fmtT = us => us >= 3.6e9 ? (us / 3.6e9).toFixed(2) + " h" : us >= 1e6 ? (us / 1e6).toFixed(3) + " s" : (us / 1e3).toFixed(2) + " ms";

  function paint() {
    cx.fillStyle = col.bg; cx.fillRect(0, 0, W, H);
    const y = r => at[r] < 0 ? -1e5 : HEAD + at[r] * ROW - V.top;
    const seen = r => r >= 0 && y(r) > HEAD - ROW && y(r) < H;
    const shown = vis.slice(Math.max(0, Math.floor(V.top / ROW)), Math.ceil((V.top + H - HEAD) / ROW));
    cx.font = "12px ui-monospace,monospace"; cx.textBaseline = "middle";
    cx.save(); cx.beginPath(); cx.rect(0, HEAD, W, H - HEAD); cx.clip();
    for (const r of shown) if (rows[r].head) { cx.fillStyle = col.band; cx.fillRect(0, y(r), W, ROW); }
    for (const [n, x0, x1] of pauses) { const s = extent(n); if (!s) continue; cx.fillStyle = col.paused; cx.fillRect(px(x0), HEAD + s[0] * ROW - V.top, Math.max(2, px(x1) - px(x0)), (s[1] - s[0]) * ROW); }
    cx.save(); cx.beginPath(); cx.rect(GUTTER, HEAD, W - GUTTER, H - HEAD); cx.clip();
    cx.fillStyle = col.task;
    for (const t of tasks) { const r = rowOf[t[2]]; if (!seen(r)) continue; const x0 = px(t[3]), x1 = t[4] < 0 ? W : px(t[4]); if (x1 < GUTTER || x0 > W) continue; cx.fillRect(x0, y(r) + 2, Math.max(1, x1 - x0), ROW - 4); }
    for (const r of shown) if (!rows[r].head) paintRow(r, y(r));
    paintPoints(y, seen);
    if (D.found >= 0) { const x = px(D.found); cx.fillStyle = col.bad; cx.fillRect(x - 1, HEAD, 2, H); }
    cx.restore();
    for (const r of shown) {
      cx.fillStyle = rows[r].head ? col.band : col.bg; cx.fillRect(0, y(r), GUTTER - 1, ROW);
      cx.fillStyle = rows[r].head ? col.ink : col.dim; cx.font = (rows[r].head ? "600 " : "") + "12px ui-monospace,monospace";
      cx.fillText((rows[r].head || rows[r].name).slice(0, 25), rows[r].head ? 8 : 18, y(r) + ROW / 2);
    }
    cx.restore();
    cx.fillStyle = col.line; cx.fillRect(GUTTER - 1, 0, 1, H);
    axis(cx, 0, W);
  }
  function axis(k, y, w) {
    k.fillStyle = col.band; k.fillRect(0, y, w, HEAD); k.fillStyle = col.dim; k.font = "11px ui-monospace,monospace"; k.textBaseline = "middle";
    k.fillText(V.byTime ? "virtual time" : "step", 8, y + HEAD / 2);
    const n = Math.max(2, Math.floor((w - GUTTER) / 130));
    for (let i = 0; i < n; i++) {
      const v = V.a + (V.b - V.a) * i / n, x = GUTTER + (w - GUTTER - MARGIN) * i / n;
      k.fillText(V.byTime ? fmtT(v) : stepNear(indexAt(v)) + "  " + fmtT(time[indexAt(v)]), x + 3, y + HEAD / 2);
      k.fillRect(x, y + HEAD - 4, 1, 4);
    }
  }
  const stepAt = new Int32Array(N + 1);
  for (const k of calls) if (k[3] <= N) stepAt[k[3]] = k[2];
  for (let i = 1; i <= N; i++) if (!stepAt[i]) stepAt[i] = stepAt[i-1];
  const stepNear = x => stepAt[Math.max(0, Math.min(N, x))];

  function paintRow(r, y) {
    const list = byRow[r]; let last = -1e9, lastK = "";
    for (let j = 0; j < list.length; j++) {
      const i = list[j], k = calls[i];
      const endX = Math.max(k[5], k[4], k[3]);
      const x0 = px(k[3]), kind = KIND[S[k[1]]] || "session", bad = k[6] !== 0;
      if (x0 > W) break;
      const x1 = k[5] < 0 && k[4] < 0 ? px(tasks[k[0]][4] < 0 ? N : tasks[k[0]][4]) : px(endX);
      if (x1 < GUTTER) continue;
      const w = Math.max(1.5, x1 - x0);
      if (w < 2 && x0 - last < 1 && !bad && lastK === kind && V.sel?.call !== i) continue; // as good as drawn
      last = x0; lastK = kind;
      cx.globalAlpha = V.match && !V.match[i] ? 0.12 : 1;
      cx.fillStyle = col[kind];
      if (kind === "wait") cx.fillRect(x0, y + ROW / 2 - 1, w, 2); else cx.fillRect(x0, y + 3, w, ROW - 6);
      if (k[4] >= 0 && w > 8) { cx.fillStyle = col.ink; cx.globalAlpha *= 0.75; cx.fillRect(px(k[4]) - 0.5, y + 3, 1.5, ROW - 6); }
      cx.globalAlpha = V.match && !V.match[i] ? 0.12 : 1;
      if (bad && kind !== "wait") { cx.fillStyle = col.bad; cx.fillRect(x0, y + ROW - 5, Math.max(w, 3), 3); }
      if (k[7]) { cx.fillStyle = col.bad; diamond(px(k[4]), y + ROW / 2, 4); }
      const left = Math.max(x0, GUTTER), room = x0 + w - left;
      if (room > 44 && kind !== "wait") { cx.fillStyle = col.panel; cx.font = "10px ui-monospace,monospace"; cx.fillText(label(k).slice(0, Math.floor((room - 8) / 6.1)), left + 4, y + ROW / 2 + 0.5); }
      cx.globalAlpha = 1;
      if (V.sel?.call === i) { cx.strokeStyle = col.sel; cx.lineWidth = 2; cx.strokeRect(x0 - 2, y + 1, w + 4, ROW - 2); }
    }
  }
  const label = k => S[k[1]] + (k.length > 8 ? " " + S[k[8]] : "");
  function diamond(x, y, n) { cx.beginPath(); cx.moveTo(x, y - n); cx.lineTo(x + n, y); cx.lineTo(x, y + n); cx.lineTo(x - n, y); cx.fill(); }
  function paintPoints(y, seen) {
    let lastMark = new Map();
    for (const p of points) {
      const x = px(p[0]);
      if (x < GUTTER - 6 || x > W + 6) continue;
      const k = S[p[1]], r = p[2] >= 0 ? rowOf[p[2]] : -1, s = extent(p[3]), sy = s ? HEAD + s[0] * ROW - V.top : 0;
      cx.globalAlpha = V.filter && !hitPoint(p) ? 0.15 : 1;
      if (k === "kill" || k === "up") {
        if (!s) continue;
        cx.fillStyle = k === "up" ? col.held : S[p[5]] === "exit" ? col.session : col.bad;
        cx.fillRect(x - 1, sy, 2, (s[1] - s[0]) * ROW);
        cx.font = "bold 12px system-ui"; cx.fillText(k === "kill" ? "✖" : "▲", x + 3, sy + ROW / 2);
      } else if (k === "fault") {
        cx.fillStyle = col.fault; const yy = r >= 0 ? y(r) + ROW / 2 : s ? sy + ROW / 2 : HEAD + 6;
        if (r < 0 || seen(r)) diamond(x, yy, 5);
      } else if (k === "mark") {
        if (!seen(r) || x - (lastMark.get(r) ?? -9) < 2) continue;
        lastMark.set(r, x); cx.fillStyle = col.mark; cx.beginPath(); cx.arc(x, y(r) + 3, 2, 0, 7); cx.fill();
      } else if (k === "session" && s) { cx.fillStyle = col.session; diamond(x, sy + ROW / 2, 4); }
      else if ((k === "ask" || k === "reply") && seen(r)) { cx.fillStyle = col.ink; cx.fillRect(x - 0.5, y(r) + 2, 1.5, ROW - 4); }
      if (V.sel?.point === p) { cx.strokeStyle = col.sel; cx.lineWidth = 2; cx.strokeRect(x - 7, (r >= 0 ? y(r) : s ? sy : HEAD), 14, ROW); }
    }
    cx.globalAlpha = 1;
  }

  // Charts.
  const GROUPS = [["chains","slots of chains"],["streams","offsets of streams"],["queues","standing markers"],["objects","objects in the bucket"]];
  const groups = GROUPS.map(([id, title]) => ({ id, title, list: D.series.filter(s => s.group === id).sort((a, b) => b.x.length - a.x.length).slice(0, 10) }));
  function valueAt(s, x) { let lo = 0, hi = s.x.length; while (lo < hi) { const m = (lo + hi) >> 1; if (s.x[m] <= x) lo = m + 1; else hi = m; } return lo ? s.v[lo-1] : null; }
  let cursorX = null;
  function chart() {
    gx.fillStyle = col.panel; gx.fillRect(0, 0, GW, GH);
    const h = GH / groups.length, sx = x => GUTTER + (pos(x) - V.a) / (V.b - V.a) * (GW - GUTTER - MARGIN);
    const i0 = indexAt(V.a), i1 = Math.min(N, indexAt(V.b) + 1), at = cursorX == null ? i1 : indexAt(axisAt(cursorX));
    groups.forEach((gr, gi) => {
      const top = gi * h + 4, bot = (gi + 1) * h - 3;
      gx.fillStyle = col.line; gx.fillRect(0, (gi + 1) * h - 1, GW, 1);
      gx.textBaseline = "top"; gx.font = "600 11px system-ui"; gx.fillStyle = col.ink; gx.fillText(gr.title, 8, top);
      let most = 1; for (const s of gr.list) for (let i = 0; i < s.x.length; i++) if (s.x[i] <= i1 && s.v[i] > most) most = s.v[i];
      gx.save(); gx.beginPath(); gx.rect(GUTTER, top - 2, GW - GUTTER, bot - top + 4); gx.clip();
      gr.list.forEach((s, n) => {
        gx.strokeStyle = HUES[n % HUES.length]; gx.lineWidth = 1.6; gx.beginPath();
        let begun = false, lastY = 0; const yy = v => bot - v / most * (bot - top - 2);
        for (let i = 0; i < s.x.length; i++) {
          const nx = i + 1 < s.x.length ? s.x[i+1] : N;
          if (nx < i0 || s.x[i] > i1) continue;
          const X = Math.max(sx(s.x[i]), GUTTER - 2), Y = yy(s.v[i]) + n * 0.6;
          if (!begun) { gx.moveTo(X, Y); begun = true; } else { gx.lineTo(X, lastY); gx.lineTo(X, Y); }
          lastY = Y; gx.lineTo(Math.min(sx(nx), GW), Y);
        }
        gx.stroke();
      });
      gx.restore();
      gx.font = "10.5px ui-monospace,monospace";
      gr.list.slice(0, 3).forEach((s, n) => { gx.fillStyle = HUES[n % HUES.length]; gx.fillText((s.name.replace("chain ", "") + " " + (valueAt(s, at) ?? "–")).slice(0, 28), 12, top + 13 + n * 11); });
      if (gr.list.length > 3) { gx.fillStyle = col.dim; gx.textAlign = "right"; gx.fillText("+" + (gr.list.length - 3), GUTTER - 6, top); gx.textAlign = "left"; }
      gx.fillStyle = col.dim; gx.textAlign = "right"; gx.fillText(most, GW - 4, top); gx.textAlign = "left";
    });
    if (D.found >= 0) { gx.fillStyle = col.bad; gx.fillRect(sx(D.found) - 1, 0, 2, GH); }
    if (cursorX != null && cursorX > GUTTER) { gx.fillStyle = col.sel; gx.globalAlpha = 0.6; gx.fillRect(cursorX, 0, 1, GH); gx.globalAlpha = 1; }
  }

  // Filter.
  let hitS = null;
  const hitPoint = p => { if (!hitS) return true; if (hitS[p[1]] || hitS[p[5]]) return true; for (let i = 6; i < p.length; i++) if (hitS[p[i]]) return true; return p[2] >= 0 && hitS[D.lanes[p[2]][1]]; };
  function filter(q) {
    V.filter = q.trim().toLowerCase(); V.at = -1;
    if (!V.filter) { V.match = null; V.matches = []; hitS = null; $("hits").textContent = ""; draw(); return; }
    const folded = V.filter.replaceAll("/", "!");
    hitS = new Uint8Array(S.length); S.forEach((s, i) => { const l = s.toLowerCase(); if (l.includes(V.filter) || l.includes(folded)) hitS[i] = 1; });
    V.match = new Uint8Array(calls.length); V.matches = [];
    calls.forEach((k, i) => {
      let hit = hitS[k[1]] || (k[6] && hitS[k[6]]) || (k[0] >= 0 && hitS[D.lanes[tasks[k[0]][2]][1]]);
      for (let j = 8; !hit && j < k.length; j++) hit = hitS[k[j]];
      if (hit) { V.match[i] = 1; V.matches.push({ x: k[3], call: i }); }
    });
    points.forEach(p => { if (hitPoint(p)) V.matches.push({ x: p[0], point: p }); });
    V.matches.sort((a, b) => a.x - b.x);
    $("hits").textContent = V.matches.length + " match" + (V.matches.length === 1 ? "" : "es");
    draw();
  }
  function nextMatch(d) {
    if (!V.matches.length) return;
    const from = V.sel ? V.sel.x : indexAt((V.a + V.b) / 2);
    if (V.at < 0) { V.at = V.matches.findIndex(m => d > 0 ? m.x > from : m.x >= from); if (d < 0) V.at--; if (V.at < 0) V.at = d > 0 ? 0 : V.matches.length - 1; }
    else V.at = (V.at + d + V.matches.length) % V.matches.length;
    $("hits").textContent = (V.at + 1) + " of " + V.matches.length;
    select(V.matches[V.at], true);
  }

  // The call in whose effect the checker spoke: nothing has an effect between the two. None if the harness found it.
  const culprit = D.found < 0 ? -1 : calls.reduce((best, k, i) => k[4] > D.found && (best < 0 || k[4] < calls[best][4]) ? i : best, -1);

  // Selection and lives.
  function show(x, row) {
    const w = V.b - V.a, p = pos(x);
    if (p < V.a + w * 0.05 || p > V.b - w * 0.05) { V.a = p - w / 2; V.b = V.a + w; }
    clamp();
    if (row >= 0 && at[row] >= 0) { const y = at[row] * ROW; if (y < V.top || y + ROW > V.top + H - HEAD) V.top = y - (H - HEAD) / 2; }
    clamp();
  }
  const rowOfSel = s => s.call != null ? rowOfCall(calls[s.call]) : s.point ? (s.point[2] >= 0 ? rowOf[s.point[2]] : (span.get(s.point[3]) || [-1])[0]) : -1;
  function select(s, move) {
    if (s.call != null) s.x = calls[s.call][3];
    V.sel = s;
    if (move) { if ((V.b - V.a) > full() / 4 && full() > 400 && !V.byTime) zoomTo(pos(s.x), Math.max(120, full() / 40)); show(s.x, rowOfSel(s)); }
    detail(); draw();
  }
  function zoomTo(p, w) { V.a = p - w / 2; V.b = p + w / 2; clamp(); }
  const esc = s => String(s).replace(/[&<>"]/g, m => ({ "&":"&amp;", "<":"&lt;", ">":"&gt;", '"':"&quot;" }[m]));
  const keyLink = k => `<a data-key="${esc(k)}">${esc(k)}</a>`;
  function objectOf(k) { const m = /(?:^|[\/!~])((?:slot|bundle|settled)[!\/].*)$/.exec(k); if (!m) return ""; let o = m[1].replaceAll("!", "/"); const cut = k.startsWith("ref/") ? o.lastIndexOf("/") : -1; return cut > 0 ? o.slice(0, cut) : o; }
  const when = x => fmtT(time[x]);
  function detail() {
    const s = V.sel, side = $("side");
    if (!s) return;
    let html = "";
    if (s.call != null) {
      const k = calls[s.call], t = k[0] >= 0 ? tasks[k[0]] : null, l = t ? D.lanes[t[2]] : null;
      html = `<h2>step ${k[2]}: ${esc(S[k[1]])}${k[6] ? ` <span class="bad">→ ${esc(S[k[6]])}</span>` : ""}</h2><dl>` +
        (l ? `<dt>task</dt><dd>${esc(S[l[0]])}#${t[1]} [${t[0]} ${esc(S[l[1]])}]</dd>` : "") +
        `<dt>issued</dt><dd>${when(k[3])}</dd><dt>effect</dt><dd>${k[4] < 0 ? "none seen" : when(k[4]) + (k[7] ? " <span class=bad>late: nobody waited for it</span>" : "")}</dd><dt>answer</dt><dd>${k[5] < 0 ? "none" : when(k[5])}</dd>` +
        keyRows(k, 8) + `</dl>` + effects(k[2]);
    } else {
      const p = s.point;
      html = `<h2>${esc(S[p[1]])}${p[5] ? ": " + esc(S[p[5]]) : ""}</h2><dl><dt>step</dt><dd>${p[4]}</dd><dt>at</dt><dd>${when(p[0])}</dd>${p[3] ? `<dt>node</dt><dd>${esc(S[p[3]])}</dd>` : ""}${keyRows(p, 6)}</dl>`;
    }
    side.innerHTML = html; side.scrollTop = 0; wire();
  }
  function keyRows(k, from) { const seen = new Set(); let out = ""; for (let j = from; j < k.length; j++) if (!seen.has(k[j])) { out += `<dt>${seen.size ? "" : "keys"}</dt><dd>${keyLink(S[k[j]])}</dd>`; seen.add(k[j]); } return out; }
  function effects(step) {
    const list = changes.filter(h => h[2] === step && h[1] !== 1);
    if (!list.length) return "";
    return "<h2>what it changed</h2><dl>" + list.map(h => `<dt>${esc(S[h[4]])}</dt><dd>${keyLink(S[h[5]])}${h[6] ? "<br>" + esc(S[h[6]]) : ""}</dd>`).join("") + "</dl>";
  }
  function life(key) {
    const o = objectOf(key) || key, folded = o.replaceAll("/", "!");
    const touch = new Uint8Array(S.length), id = /^(?:stream|head|mark)\/([0-9a-f]{16})$/.exec(o);
    // A stream's markers name it by its id alone.
    const marker = id && new RegExp(`^due/(?:teardown|retention)/.*~${id[1]}$`);
    S.forEach((s, i) => { if (s.includes(o) || s.includes(folded) || marker && marker.test(s)) touch[i] = 1; });
    const items = [];
    for (const h of changes) {
      if (h[1] === 0 && S[h[5]].startsWith("due/")) continue; // the marker's line says it
      if (!touch[h[5]] && !touch[h[7]]) continue;
      const k = S[h[5]], what = h[1] === 2 ? ({ put: "PUT", replaced: "PUT again", deleted: "DELETE" }[S[h[4]]]) : h[1] === 1 ? (k.startsWith("due/orphan/") ? "intent" : k.split("/")[1] + " marker") : k.split("/")[0];
      items.push({ x: h[0], step: h[2], what, state: h[1] === 2 ? "" : S[h[4]], text: (h[1] === 2 ? S[h[6]] : k) + (h[1] === 0 && h[6] ? " " + S[h[6]] : "") + (h[9] >= 0 ? "  due at " + fmtT(h[9] * 1000) : "") + (h[8] ? "  LATE" : ""), node: S[h[3]] });
    }
    for (const k of calls) {
      if (k[6] === 0 && !/^(get|scan|GET|STAT)$/.test(S[k[1]])) continue; // its changes are there
      let hit = false; for (let j = 8; !hit && j < k.length; j++) hit = touch[k[j]];
      if (hit) items.push({ x: k[3], step: k[2], what: S[k[1]], state: k[6] ? "→ " + S[k[6]] : "", text: k[0] >= 0 ? S[D.lanes[tasks[k[0]][2]][1]] : "", node: k[0] >= 0 ? S[D.lanes[tasks[k[0]][2]][0]] : "", dim: k[6] === 0, bad: k[6] !== 0 });
    }
    for (const p of points) { let hit = false; for (let j = 6; !hit && j < p.length; j++) hit = touch[p[j]]; if (hit) items.push({ x: p[0], step: p[4], what: S[p[1]], state: "", text: S[p[5]], node: S[p[3]], bad: S[p[1]] === "finding", point: p }); }
    // The checker speaks in the midst of an effect: its finding is told behind all of it.
    const order = i => i.what === "finding" && culprit >= 0 ? calls[culprit][4] : i.x;
    items.sort((a, b) => order(a) - order(b));
    const most = 1500, cut = items.length > most;
    $("side").innerHTML = `<h2>The life of</h2><p><code>${esc(o)}</code></p><p class="sub">${items.length} events${cut ? ", the last " + most + " of them" : ""}</p><ul id="life">` +
      (cut ? items.slice(-most) : items).map(i => `<li tabindex="0" data-x="${i.x}" data-step="${i.step}" data-what="${esc(i.what)}" class="${i.bad ? "bad" : ""}" style="${i.dim ? "opacity:.6" : ""}"><span class="t">${i.step} ${fmtT(time[i.x])} ${esc(i.node)}</span> <b>${esc(i.what)}</b> ${esc(i.state)}<br>${esc(i.text)}</li>`).join("") + "</ul>";
    $("side").scrollTop = 0; filterTo(o); wire();
    const end = [...$("life").children].find(li => li.dataset.what === "finding");
    if (end) { end.classList.add("here"); end.scrollIntoView({ block: "center" }); }
  }
  function filterTo(q) { $("filter").value = q; filter(q); }
  function wire() {
    for (const a of $("side").querySelectorAll("[data-key]")) { a.tabIndex = 0; a.onclick = () => life(a.dataset.key); a.onkeydown = e => { if (e.key === "Enter") life(a.dataset.key); }; }
    for (const li of $("side").querySelectorAll("li[data-x]")) { const go = () => jump(+li.dataset.x, +li.dataset.step, li); li.onclick = go; li.onkeydown = e => { if (e.key === "Enter") go(); }; }
  }
  function jump(x, step, li) {
    const i = callByStep.get(step);
    if (li) { for (const e of li.parentElement.children) e.classList.remove("here"); li.classList.add("here"); }
    V.sel = i != null ? { call: i, x: calls[i][3] } : { x };
    if ((V.b - V.a) > full() / 4 && full() > 400 && !V.byTime) zoomTo(pos(x), Math.max(120, full() / 40));
    show(x, i != null ? rowOfCall(calls[i]) : -1); draw();
  }

  // The failure, pinned.
  const held = D.verdict !== "broken";
  $("head").classList.toggle("held", held);
  $("verdict").innerHTML = held ? `<b>held</b> &nbsp;${esc(D.title)}` : `<b>${esc(D.invariant)}</b> broke at step ${D.step}: ${esc(D.text)}`;
  $("what").innerHTML = (held ? "" : `${D.object ? `<a data-key="${esc(D.object)}" tabindex="0" style="color:var(--sel);cursor:pointer">${esc(D.object)}</a> &nbsp;` : ""}`) +
    `<span class="sub">${held ? "" : esc(D.title) + " · "}${calls.length} steps, ${fmtT(time[N])} of virtual time · hash ${esc(D.hash)}</span>`;
  for (const a of $("what").querySelectorAll("[data-key]")) { a.onclick = () => life(D.object); a.onkeydown = e => { if (e.key === "Enter") life(D.object); }; }
  if (!held) {
    const items = [];
    const upTo = D.found < 0 ? N : D.found + 1;
    for (let i = calls.length - 1, n = 0; i >= 0 && n < 10; i--) if (calls[i][3] <= upTo && i !== culprit && KIND[S[calls[i][1]]] !== "wait") { items.push({ x: calls[i][3], call: i }); n++; }
    if (culprit >= 0) items.push({ x: D.found, call: culprit });
    points.filter(p => ["fault","kill","pause","resume","up","session"].includes(S[p[1]]) && p[0] <= upTo && S[p[5]] !== "exit").slice(-6).forEach(p => items.push({ x: p[0], point: p }));
    items.sort((a, b) => a.x - b.x);
    for (const it of items) {
      const li = document.createElement("li"); li.tabIndex = 0;
      if (it.call != null) { const k = calls[it.call], t = tasks[k[0]], l = t && D.lanes[t[2]]; li.textContent = `${String(k[2]).padStart(6)}  ${when(k[3]).padStart(10)}  ${l ? (S[l[0]] + "#" + t[1] + " " + S[l[1]]).padEnd(24) : ""} ${it.call === culprit ? "broke it at " + when(k[4]) + ": " : ""}${S[k[1]]} ${[...new Set(k.slice(8))].slice(0, 4).map(i => S[i]).join(" ")}${k[6] ? " → " + S[k[6]] : ""}`; if (k[6] || it.call === culprit) li.className = "bad"; }
      else { const p = it.point; li.textContent = `${String(p[4]).padStart(6)}  ${when(p[0]).padStart(10)}  ${S[p[3]].padEnd(24)} ${S[p[1]]} ${S[p[5]]}`; li.className = "bad"; }
      li.onclick = () => select(it, true); li.onkeydown = e => { if (e.key === "Enter") select(it, true); };
      li.style.whiteSpace = "pre";
      $("last").append(li);
    }
    $("last").scrollTop = 1e9;
  } else $("last").remove();
  $("legend").innerHTML = LEGEND.map(([k, t]) => `<span><i style="background:var(--${k})"></i>${t}</span>`).join("");
  $("foot").innerHTML = "<kbd>←</kbd> <kbd>→</kbd> pan &nbsp; <kbd>+</kbd> <kbd>−</kbd> zoom &nbsp; <kbd>↑</kbd> <kbd>↓</kbd> scroll &nbsp; <kbd>[</kbd> <kbd>]</kbd> previous, next call of the lane &nbsp; <kbd>/</kbd> filter &nbsp; <kbd>n</kbd> <kbd>N</kbd> next, previous match &nbsp; <kbd>f</kbd> failure &nbsp; <kbd>Enter</kbd> life of its key &nbsp; <kbd>?</kbd> all keys";

  // What is under the pointer.
  function under(mx, my) {
    const r = vis[Math.floor((my - HEAD + V.top) / ROW)];
    if (my < HEAD || mx < GUTTER || r == null) return null;
    let best = null, d = 7;
    for (const p of points) {
      const k = S[p[1]], pr = p[2] >= 0 ? rowOf[p[2]] : (span.get(p[3]) || [-1])[0];
      if (pr !== r || k === "start" || k === "exit") continue;
      const e = Math.abs(px(p[0]) - mx) + (k === "mark" ? 3 : 0);
      if (e < d) { d = e; best = { point: p, x: p[0] }; }
    }
    if (best && d < 4) return best;
    for (const i of byRow[r]) {
      const k = calls[i], x0 = px(k[3]), x1 = Math.max(x0 + 2, px(Math.max(k[3], k[4], k[5])));
      const e = mx < x0 ? x0 - mx : mx > x1 ? mx - x1 : 0;
      if (e < d || e === 0 && d === 0) { d = e; best = { call: i, x: k[3] }; }
    }
    return best;
  }
  c.onmousemove = e => {
    cursorX = e.offsetX;
    if (e.buttons & 1 && drag) { const w = V.b - V.a; V.a = drag.a - (e.offsetX - drag.x) / (W - GUTTER) * w; V.b = V.a + w; V.top = drag.top - (e.offsetY - drag.y); drag.moved = drag.moved || Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) > 4; clamp(); draw(); return; }
    const u = under(e.offsetX, e.offsetY), tip = $("tip");
    if (!u) tip.style.display = "none";
    else {
      if (u.call != null) { const k = calls[u.call]; tip.innerHTML = `step ${k[2]} ${esc(S[k[1]])} ${[...new Set(k.slice(8))].slice(0, 6).map(i => esc(S[i])).join("<br>")}${k[6] ? `<br><span class=bad>→ ${esc(S[k[6]])}</span>` : ""}<br>${when(k[3])}`; }
      else tip.innerHTML = `${esc(S[u.point[1]])} ${esc(S[u.point[5]])}<br>${when(u.point[0])}`;
      tip.style.display = "block"; tip.style.left = Math.min(e.clientX + 14, innerWidth - 460) + "px"; tip.style.top = Math.min(e.clientY + 14, innerHeight - 120) + "px";
    }
    draw();
  };
  let drag = null;
  c.onmousedown = e => { drag = { x: e.offsetX, y: e.offsetY, a: V.a, top: V.top, moved: false }; c.focus(); };
  c.onmouseup = e => { if (drag && !drag.moved) { const u = under(e.offsetX, e.offsetY); if (u) select(u, false); } drag = null; };
  c.onmouseleave = () => { $("tip").style.display = "none"; cursorX = null; draw(); };
  c.ondblclick = e => zoom(0.4, e.offsetX);
  g.onmousemove = e => { cursorX = e.offsetX; draw(); };
  g.onmouseleave = () => { cursorX = null; draw(); };
  g.onclick = e => { const p = axisAt(e.offsetX); zoomTo(p, (V.b - V.a)); draw(); };
  for (const e of [c, g]) e.addEventListener("wheel", ev => {
    ev.preventDefault();
    if (ev.ctrlKey || ev.metaKey || ev.altKey) zoom(ev.deltaY > 0 ? 1.25 : 0.8, ev.offsetX);
    else if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) pan((ev.deltaX || ev.deltaY) / W);
    else { V.top += ev.deltaY; clamp(); draw(); }
  }, { passive: false });
  function pan(f) { const w = V.b - V.a; V.a += w * f; V.b = V.a + w; clamp(); draw(); }
  function zoom(f, at) {
    const p = at != null ? axisAt(at) : V.sel && pos(V.sel.x) >= V.a && pos(V.sel.x) <= V.b ? pos(V.sel.x) : (V.a + V.b) / 2;
    const w = Math.min(full(), Math.max(V.byTime ? 10 : 4, (V.b - V.a) * f)), share = (p - V.a) / (V.b - V.a);
    V.a = p - w * share; V.b = V.a + w; clamp(); draw();
  }
  function failure() {
    if (D.found < 0) return;
    { const w = V.byTime ? Math.max(1e5, full() / 100) : Math.min(full(), 200); V.b = pos(D.found) + w * 0.06; V.a = V.b - w; if (V.b > full()) { V.b = full(); V.a = V.b - w; } clamp(); }
    const i = culprit >= 0 ? culprit : callByStep.get(D.step);
    // The failure stays in view, however long ago its call was issued.
    if (i != null) select({ call: i }, false), show(D.found, rowOfCall(calls[i]));
    draw();
  }
  function axisSwitch() { const x0 = indexAt(V.a), x1 = Math.max(x0 + 1, indexAt(V.b)); V.byTime = !V.byTime; V.a = pos(x0); V.b = pos(x1) + (V.byTime ? 1 : 0); $("baxis").textContent = "axis: " + (V.byTime ? "time" : "events"); clamp(); draw(); }
  function idleSwitch() { V.compact = !V.compact; $("bidle").textContent = V.compact ? "show idle lanes" : "hide idle lanes"; clamp(); if (V.sel) show(V.sel.x, rowOfSel(V.sel)); draw(); }
  function theme(to) { document.documentElement.dataset.theme = to; $("btheme").textContent = to === "dark" ? "light" : "dark"; palette(); draw(); }
  const toggleTheme = () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  function step(d) {
    const s = V.sel; if (!s) return failure();
    const row = rowOfSel(s), list = row >= 0 ? byRow[row] : null;
    if (!list || !list.length) return;
    let j = list.findIndex(i => calls[i][3] >= s.x); if (j < 0) j = list.length;
    if (s.call != null) j = list.indexOf(s.call) + d; else j = d > 0 ? j : j - 1;
    if (j >= 0 && j < list.length) select({ call: list[j] }, true);
  }
  function dialog(html) { $("help").innerHTML = html + '<p><button autofocus onclick="this.closest(\'dialog\').close()">close</button></p>'; $("help").showModal(); }
  const help = () => dialog("<h2>Keys</h2><table>" + [["← →","pan; with Shift by a page"],["↑ ↓, PageUp PageDown","scroll the lanes"],["+ −","zoom around the selection, or the middle"],["0","all of the run"],["f","the failure"],["/","filter; Enter to the first match, Esc clears"],["n N","next and previous match"],["[ ]","previous and next call of the selected lane"],["Enter","the life of the selection's first key; of the object of the failure if nothing is selected"],["l","the life of the object of the failure"],["t","axis by events, or by virtual time"],["h","lanes that are idle in view: hide or show"],["d","dark or light"],["Tab","to the lists, whose lines Enter opens"]].map(r => `<tr><td><kbd>${r[0]}</kbd><td>${r[1]}`).join("") + "</table><p>Each lane is a task; tasks of one name that follow each other share one. A bar is a call, from its issue to its answer; the tick in it is the moment of its effect; red below it: it failed; a red diamond: the effect came when nobody waited any more. Yellow: a fault. ✖ a kill, ▲ a start; a yellow band: the process is stopped.</p>");
  const planBox = () => dialog(`<h2>${esc(D.title)}</h2><pre>${esc((D.plan || []).join("\n")) || "a scenario: its script says it all"}</pre>`);
  $("bfail").onclick = failure; $("bfit").onclick = () => { V.a = 0; V.b = full(); clamp(); draw(); };
  $("baxis").onclick = axisSwitch; $("bidle").onclick = idleSwitch; $("btheme").onclick = toggleTheme; $("bhelp").onclick = help; $("bplan").onclick = planBox;
  $("filter").oninput = e => filter(e.target.value);
  $("filter").onkeydown = e => { e.stopPropagation(); if (e.key === "Enter") { nextMatch(e.shiftKey ? -1 : 1); c.focus(); } if (e.key === "Escape") { filterTo(""); c.focus(); } };
  if (held) $("bfail").remove();
  addEventListener("keydown", e => {
    if ($("help").open || e.ctrlKey || e.metaKey || e.altKey) return;
    const inList = e.target.tagName === "LI" || e.target.tagName === "BUTTON" || e.target.dataset?.key || e.target.id === "side";
    const k = e.key;
    if (inList && (k === "ArrowUp" || k === "ArrowDown")) {
      const to = k === "ArrowUp" ? e.target.previousElementSibling : e.target.nextElementSibling;
      if (e.target.tagName === "LI") { if (to) to.focus(); e.preventDefault(); }
      return;
    }
    if (inList && (k === "Enter" || k === " ")) return;
    const act = { ArrowLeft: () => pan(e.shiftKey ? -0.9 : -0.15), ArrowRight: () => pan(e.shiftKey ? 0.9 : 0.15), ArrowUp: () => { V.top -= ROW * 3; clamp(); draw(); }, ArrowDown: () => { V.top += ROW * 3; clamp(); draw(); },
      PageUp: () => { V.top -= H - HEAD; clamp(); draw(); }, PageDown: () => { V.top += H - HEAD; clamp(); draw(); }, "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), "0": () => $("bfit").click(),
      f: failure, "/": () => $("filter").focus(), n: () => nextMatch(1), N: () => nextMatch(-1), "[": () => step(-1), "]": () => step(1), t: axisSwitch, h: idleSwitch, d: toggleTheme, "?": help, l: () => D.object && life(D.object),
      Enter: () => { const s = V.sel, k = s && s.call != null ? calls[s.call] : null, p = s && s.point; const key = k && k.length > 8 ? S[k[8]] : p && p.length > 6 ? S[p[6]] : D.object; if (key) life(key); },
      Escape: () => { filterTo(""); } }[k];
    if (act) { act(); e.preventDefault(); }
  });
  matchMedia("(prefers-color-scheme: dark)").onchange = e => theme(e.matches ? "dark" : "light");
  theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  new ResizeObserver(resize).observe($("left"));
  resize();
  if (!held) failure();
  if (!held && D.object) life(D.object), filterTo("");
  c.focus({ preventScroll: true });
  window.novaPage = { view: V, rows, steps: calls.length }; // for whoever tests the page
}
