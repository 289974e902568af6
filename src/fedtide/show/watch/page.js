// Follows the studies of a folder: asks the server every second for new rounds and draws them. Text from studies
// is always set as text, never as HTML.

const EVERY = 1000; // milliseconds between two requests
const LATEST = 60; // rounds in the log
const POINTS = 500; // of a curve; more would share pixels
const STRIPES = 60; // sessions at most; more would be thinner than a line
const SVG = "http://www.w3.org/2000/svg";

const part = (id) => document.getElementById(id);
const percent = (value) => (value == null ? "-" : (100 * value).toFixed(1));
const number = (value) => (value == null ? "-" : value.toFixed(1));
const plain = (value) => (value == null ? "-" : value.toPrecision(3));
const count = (value) => (value == null ? "-" : Number(value.toFixed(1)).toLocaleString("en"));

let chosen = asked();
let shown = null; // the study on the page, made by begun()

function asked() {
  return decodeURIComponent(location.hash.slice(1));
}

// An element with attributes and children; strings become text.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function draw(name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

// ---- the data ---------------------------------------------------------------------------------------------

// Is the score a share, shown in percent?
function isShare(news) {
  return news.score.name === "accuracy";
}

// Mean, lowest and highest over the seeds, round by round.
class Curve {
  rounds = [];
  add(t, value) {
    if (value == null) return;
    const at = (this.rounds[t] ??= { n: 0, sum: 0, low: value, high: value });
    at.n += 1;
    at.sum += value;
    at.low = Math.min(at.low, value);
    at.high = Math.max(at.high, value);
  }
  points() {
    const all = [];
    this.rounds.forEach((at, t) => all.push({ x: t + 1, y: at.sum / at.n, low: at.low, high: at.high, n: at.n }));
    const step = Math.ceil(all.length / POINTS);
    return step < 2 ? all : all.filter((_, n) => n % step === 0 || n === all.length - 1);
  }
  // The last round, counted from 0, for which so many seeds have a value; -1 if there is none.
  last(seeds) {
    return this.rounds.findLastIndex((at) => at?.n >= seeds);
  }
  mean(t) {
    const at = this.rounds[t];
    return at ? at.sum / at.n : null;
  }
  best(until, larger = true) {
    const better = larger ? Math.max : Math.min;
    return this.rounds.slice(0, until + 1).reduce((best, at) => better(best ?? at.sum / at.n, at.sum / at.n), null);
  }
}

// The number of seeds that the table averages for a setting: those that have finished or, if none has, all that have
// begun. They are averaged at the last round that all of them have reached, so early and late rounds are not mixed.
function counted(cell) {
  return cell.population.rounds[cell.rounds - 1]?.n || begunSeeds(cell);
}

function begunSeeds(cell) {
  return cell.population.rounds[0]?.n ?? 0;
}

function begun(news) {
  const cells = news.cells.map((cell) => ({
    ...cell, done: 0,
    score: new Curve(), loss: new Curve(), cohort: new Curve(), population: new Curve(),
  }));
  return { epoch: news.epoch, since: 0, cells, sessions: [], log: [], pace: [], news };
}

// Add new rounds; true if there were any.
function addRounds(study, news) {
  study.news = news;
  for (const [run, t, session, population, cohort, score, loss, seconds] of news.events) {
    const number = Math.floor(run / news.seeds.length);
    const cell = study.cells[number];
    cell.done += 1;
    cell.score.add(t, score == null ? null : isShare(news) ? 100 * score : score);
    cell.loss.add(t, loss);
    cell.cohort.add(t, cohort);
    cell.population.add(t, population);
    if (run === 0) study.sessions[t] = session;
    study.log.unshift({ cell, seed: news.seeds[run % news.seeds.length], t, population, cohort, score, loss, seconds });
  }
  study.log.length = Math.min(study.log.length, LATEST);
  study.since = news.since + news.events.length;
  const now = performance.now();
  if (!news.more) study.pace.push([now, news.rounds]);
  study.pace = study.pace.filter(([when]) => now - when < 60_000);
  return news.events.length > 0;
}

// ---- the texts ---------------------------------------------------------------------------------------------

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129_600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}

function words(study) {
  if (study.state === "quiet") return `no news for ${span(study.age)}`;
  return study.state;
}

function share(study) {
  if (study.state === "finished") return 1;
  return study.total ? study.rounds / study.total : 0;
}

function bar(study) {
  const inner = make("div");
  inner.style.width = `${100 * share(study)}%`;
  return make("div", { class: `bar ${study.state}` }, inner);
}

function list(studies) {
  part("studies").replaceChildren(
    ...studies.map((study) => {
      const done = study.total ? `${Math.floor(100 * share(study))} %` : `${count(study.rounds)} rounds`;
      const link = make(
        "a", { href: `#${encodeURIComponent(study.name)}` },
        make("span", { class: "title" }, study.name), bar(study),
        make("span", { class: "state" }, make("span", { class: study.state }, words(study)), make("span", {}, done)),
      );
      if (study.name === chosen) link.setAttribute("aria-current", "page");
      return link;
    }),
  );
}

// The seconds that are left at the speed of the last minute; null if it is unknown.
function left(study) {
  const [first, last] = [study.pace[0], study.pace.at(-1)];
  const rate = (last[1] - first[1]) / (last[0] - first[0]);
  return study.news.state === "running" && study.news.total && rate > 0 && last[0] - first[0] > 3000
    ? (study.news.total - study.news.rounds) / rate / 1000
    : null;
}

function head(study) {
  const { news } = study;
  part("name").textContent = news.name;
  part("question").textContent = news.question;
  part("filled").parentElement.className = `bar ${news.state}`;
  part("filled").style.width = `${100 * share(news)}%`;
  const bold = (text) => make("b", {}, text);
  const line = [make("span", { class: news.state }, words(news)), " · ", bold(count(news.rounds))];
  line.push(news.total ? ` of ${count(news.total)} rounds · ` : " rounds · ");
  line.push(bold(String(news.ended)), ` of ${news.runs} runs finished`);
  const rest = left(study);
  if (rest !== null) line.push(` · about ${span(rest)} left`);
  if (news.state === "quiet") line.push(" · it may have stopped");
  if (news.report) line.push(" · ", make("a", { href: `/reports/${encodeURIComponent(news.name)}` }, "report"));
  part("numbers").replaceChildren(...line);
}

function swatch(cell) {
  const svg = draw("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
  svg.append(draw("line", { x1: 0, x2: 26, y1: 4, y2: 4, ...stroke(cell) }));
  return svg;
}

function table(study) {
  part("cells").replaceChildren(
    ...study.cells.map((cell) => {
      const all = cell.rounds == null ? "" : ` / ${count(cell.rounds * study.news.seeds.length)}`;
      const seeds = counted(cell);
      const at = cell.population.last(seeds);
      const tested = cell.score.last(seeds);
      const { larger } = study.news.score;
      const text = isShare(study.news) ? number : plain;
      const of = study.news.seeds.length > 1 ? ` (${seeds} of ${study.news.seeds.length} seeds)` : "";
      const numbers = [
        count(cell.done) + all, at < 0 ? "-" : count(at + 1) + of,
        text(cell.score.mean(tested)), text(cell.score.best(tested, larger)), plain(cell.loss.mean(tested)),
        count(cell.population.mean(at)), count(cell.cohort.mean(at)),
      ];
      return make("tr", {}, make("td", {}, swatch(cell), cell.label), ...numbers.map((text) => make("td", {}, text)));
    }),
  );
}

function log(study) {
  part("log").replaceChildren(
    ...study.log.map((line) =>
      make("li", {}, ...[
        `round ${line.t + 1}`,
        line.score == null ? "not tested" : isShare(study.news) ? `accuracy ${percent(line.score)} %` : `${study.news.score.name} ${plain(line.score)}`,
        line.loss == null ? "" : `loss ${plain(line.loss)}`,
        `${line.cohort} of ${line.population} clients`, `${line.seconds.toFixed(2)} s`,
        `${line.cell.label}, seed ${line.seed}`,
      ].map((text) => make("span", {}, text))),
    ),
  );
}

// The clients of a deployment; hidden for a simulation.
function deployment(study) {
  const state = study.news.deployment;
  part("deployment").hidden = !state;
  if (!state) return;
  const here = state.clients.filter((client) => client.here).length;
  const waiting = state.waiting.length ? ` Waiting for the replies of clients ${state.waiting.join(", ")}.` : "";
  part("here").textContent = `${here} of ${state.clients.length} known clients are connected.${waiting}`;
  part("deployed").replaceChildren(
    ...state.clients.map((client) => {
      const last = client.seconds == null ? "-" : `${client.seconds.toFixed(2)} s`;
      const cells = [
        client.number, client.here ? "yes" : "no", client.examples ? count(client.examples) : "-",
        count(client.replies), last, count(client.late), count(client.failed), client.why || "-",
      ];
      return make("tr", {}, ...cells.map((text) => make("td", {}, String(text))));
    }),
  );
  part("news").replaceChildren(...state.news.map((text) => make("li", {}, make("span", {}, text))));
}

// ---- the charts --------------------------------------------------------------------------------------------

function stroke(line) {
  return { stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash, fill: "none" };
}

// About `wanted` tick marks from low to high, at multiples of 1, 2 or 5 times a power of ten.
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n += 1) found.push(n * step);
  return found;
}

// The sessions as [first round, last round], from the first run's rounds.
function sessions(study) {
  const spans = [];
  study.sessions.forEach((session, t) => {
    if (session === spans.at(-1)?.session) spans.at(-1).last = t + 1;
    else spans.push({ session, first: t + 1, last: t + 1 });
  });
  return spans.length > 1 && spans.length <= STRIPES ? spans : [];
}

// The size of a chart and its scales: x and y turn rounds and values into pixels.
function scales(points, unit, width, floor) {
  const height = 260;
  const edge = { left: 52, right: 12, top: 8, bottom: 42 };
  const least = Math.min(...points.map((p) => p.low));
  const most = Math.max(...points.map((p) => p.high));
  const margin = (most - least) * 0.05 || 1;
  const low = floor ?? Math.max(least >= 0 ? 0 : -Infinity, least - margin);
  const high = unit === "%" ? Math.min(100, most + margin) : most + margin;
  const last = Math.max(...points.map((p) => p.x), 2);
  const x = (value) => edge.left + ((value - 1) / (last - 1)) * (width - edge.left - edge.right);
  const y = (value) => height - edge.bottom - ((value - low) / (high - low)) * (height - edge.top - edge.bottom);
  return { width, height, edge, low, high, last, x, y };
}

// Every second session as a stripe.
function drawSessions(svg, { height, edge, last, x }, study) {
  for (const { session, first, last: until } of sessions(study)) {
    if (session % 2) {
      const from = x(Math.max(1, first - 0.5));
      const to = x(Math.min(last, until + 0.5));
      svg.append(draw("rect", { class: "session", x: from, y: edge.top, width: Math.max(0, to - from), height: height - edge.top - edge.bottom }));
    }
  }
}

function drawAxes(svg, { width, height, edge, low, high, last, x, y }, unit) {
  for (const tick of ticks(low, high, 5)) {
    svg.append(draw("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(tick), y2: y(tick) }));
    svg.append(draw("text", { x: edge.left - 8, y: y(tick) + 4, "text-anchor": "end" }, String(Number(tick.toPrecision(6)))));
  }
  for (const tick of ticks(1, last, Math.max(5, width / 110)).filter(Number.isInteger)) {
    svg.append(draw("text", { x: x(tick), y: height - edge.bottom + 18, "text-anchor": "middle" }, String(tick)));
  }
  svg.append(draw("text", { x: (edge.left + width - edge.right) / 2, y: height - 4, "text-anchor": "middle" }, "round"));
  const middle = (edge.top + height - edge.bottom) / 2;
  svg.append(draw("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, unit === "%" ? "accuracy (%)" : unit));
}

// A curve with its band; faint beyond the last round that all seeds have reached.
function drawCurve(svg, { x, y }, line) {
  if (line.points.some((p) => p.low < p.high)) {
    const upper = line.points.map((p) => `${x(p.x)},${y(p.high)}`);
    const lower = line.points.map((p) => `${x(p.x)},${y(p.low)}`).reverse();
    svg.append(draw("polygon", { points: [...upper, ...lower].join(" "), fill: line.colour, opacity: 0.12 }));
  }
  const path = (some) => ({ points: some.map((p) => `${x(p.x)},${y(p.y)}`).join(" "), ...stroke(line), "stroke-linejoin": "round" });
  const ahead = line.points.filter((p) => p.x > line.common);
  const together = line.points.slice(0, line.points.length - ahead.length);
  svg.append(draw("polyline", path(together)));
  if (ahead.length) svg.append(draw("polyline", { ...path([...together.slice(-1), ...ahead]), opacity: 0.35 }));
  if (line.points.length === 1) svg.append(draw("circle", { cx: x(line.points[0].x), cy: y(line.points[0].y), r: 3, fill: line.colour }));
}

function chart(id, title, unit, lines, study, floor = null) {
  const place = part(id);
  const heading = make("h3", {}, title);
  const drawn = lines.map((line) => ({ ...line, points: line.curve.points() })).filter((line) => line.points.length);
  if (!drawn.length) {
    place.replaceChildren(heading, make("p", { class: "wait" }, "Nothing yet."));
    return;
  }
  const frame = scales(drawn.flatMap((line) => line.points), unit, Math.max(260, place.clientWidth - 32), floor);
  const { width, height, edge } = frame;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${title} by round` });
  drawSessions(svg, frame, study);
  drawAxes(svg, frame, unit);
  for (const line of drawn) drawCurve(svg, frame, line);
  const tip = make("div", { class: "tip", hidden: "" });
  const cursor = draw("line", { class: "cursor", y1: edge.top, y2: height - edge.bottom, visibility: "hidden" });
  svg.append(cursor);
  svg.onpointermove = (event) => showValues(event, { svg, tip, cursor, drawn, unit, ...frame });
  svg.onpointerleave = () => {
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  };
  place.replaceChildren(heading, svg, tip);
}

// The values of the curves at the pointer.
function showValues(event, { svg, tip, cursor, drawn, x, width, edge, last, unit }) {
  const box = svg.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * width;
  const round = Math.round(1 + ((at - edge.left) / (width - edge.left - edge.right)) * (last - 1));
  const near = (line) => line.points.reduce((a, b) => (Math.abs(b.x - round) < Math.abs(a.x - round) ? b : a));
  // Only curves that have a point near this round.
  const reaches = ({ points }) => {
    const apart = points.length > 1 ? (points.at(-1).x - points[0].x) / (points.length - 1) : 1;
    return points[0].x - apart <= round && round <= points.at(-1).x + apart;
  };
  const there = drawn.filter(reaches);
  if (!there.length) return;
  const rows = there.slice(0, 12).map((line) => {
    const colour = make("i");
    colour.style.background = line.colour;
    const value = near(line).y;
    const some = near(line).x > line.common ? ` (${near(line).n} of ${line.seeds} seeds)` : "";
    return make("p", {}, make("span", {}, colour, line.name + some), make("span", {}, unit === "%" ? `${value.toFixed(1)} %` : plain(value)));
  });
  tip.replaceChildren(make("p", {}, make("b", {}, `round ${near(there[0]).x}`)), ...rows);
  tip.hidden = false;
  tip.style.left = at < width / 2 ? `${at + 24}px` : "";
  tip.style.right = at < width / 2 ? "" : `${width - at + 24}px`;
  cursor.setAttribute("x1", x(near(there[0]).x));
  cursor.setAttribute("x2", x(near(there[0]).x));
  cursor.setAttribute("visibility", "visible");
}

function charts(study) {
  // Up to round `common` a curve is the mean of all seeds that have begun; beyond it, of those that are ahead.
  const reach = (cell) => ({ seeds: begunSeeds(cell), common: cell.population.last(begunSeeds(cell)) + 1 });
  const of = (key) => study.cells.map((cell) => ({ name: cell.label, colour: cell.colour, dash: cell.dash, curve: cell[key], ...reach(cell) }));
  const { name } = study.news.score;
  part("score-head").textContent = isShare(study.news) ? "accuracy %" : name;
  part("best-head").textContent = isShare(study.news) ? "best %" : "best";
  chart("score", `Test ${name}`, isShare(study.news) ? "%" : name, of("score"), study);
  chart("loss", "Test loss", "loss", of("loss"), study);
  const first = study.cells.find((cell) => cell.done) ?? study.cells[0];
  const population = { name: "population", colour: "var(--faint)", dash: "4 4", curve: first.population, ...reach(first) };
  const cohorts = of("cohort").map((line) => ({ ...line, name: `cohort: ${line.name}` }));
  chart("clients", "Clients: population (dashed) and cohort", "clients", [population, ...cohorts], study, 0);
}

// ---- the requests ------------------------------------------------------------------------------------------

function status(text, kind) {
  part("link").textContent = text;
  part("link").className = kind;
}

function note(text) {
  part("note").textContent = text;
  part("note").hidden = !text;
  part("shown").hidden = Boolean(text);
}

class Lost extends Error {}

async function ask(path) {
  try {
    const answer = await fetch(path, { signal: AbortSignal.timeout(20_000) });
    return answer.ok ? await answer.json() : null;
  } catch {
    throw new Lost(path);
  }
}

async function follow(studies) {
  if (!studies.some((study) => study.name === chosen)) {
    if (chosen && shown) {
      shown = null;
      note(`The study ${chosen} is no longer there.`);
    } else if (studies.length && !asked()) {
      chosen = studies[0].name;
    } else note(studies.length ? "Choose a study." : "Waiting for the first study in this folder.");
    if (!studies.some((study) => study.name === chosen)) return;
  }
  let news;
  do {
    const name = chosen;
    const known = shown?.news.name === name ? shown : null;
    news = await ask(`/studies/${encodeURIComponent(name)}?epoch=${known?.epoch ?? ""}&since=${known?.since ?? 0}`);
    if (!news || name !== chosen) return;
    const isAnew = known?.epoch !== news.epoch;
    if (isAnew) shown = begun(news);
    const isMore = addRounds(shown, news);
    note("");
    head(shown);
    deployment(shown);
    if (isMore || isAnew) [table, log, charts].forEach((show) => show(shown));
  } while (news.more);
}

async function turn() {
  try {
    const found = await ask("/studies");
    part("folder").textContent = found.folder;
    await follow(found.studies);
    list(found.studies);
    status("live", "live");
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    status("no connection, trying again", "lost");
  }
}

let turning = Promise.resolve();
function next() {
  turning = turning.then(turn, turn);
  return turning;
}

addEventListener("hashchange", () => {
  chosen = asked();
  next();
});
let width = 0;
new ResizeObserver(() => {
  if (shown && part("study").clientWidth !== width) charts(shown);
  width = part("study").clientWidth;
}).observe(part("study"));

async function forever() {
  await next();
  setTimeout(forever, EVERY);
}
forever();
