// A page that publishes and shows events as they come. Served from anywhere; see the README of this package.
import { connect } from "prombus";

/** More would make the page slow. */
const SHOWN = 200;

const find = (selector) => document.querySelector(selector);
const connecting = find("#bus");
const publishing = find("#publish");
const [state, events, template] = [find("#state"), find("#events"), find("template")];
const publishButton = find("#publish button");
const result = find("output");
let bus;

/** What stands in a field of a form. */
const field = (form, name) => new FormData(form).get(name);

function showState(now, because) {
  state.dataset.state = now;
  state.textContent = because ? `${now}: ${because.message}` : now;
  publishButton.disabled = now === "closed";
}

function showEvent({ seq, ts, payload }) {
  const item = template.content.cloneNode(true);
  item.querySelector("b").textContent = `#${seq}`;
  item.querySelector("time").textContent = new Date(ts).toLocaleTimeString();
  item.querySelector("code").textContent = JSON.stringify(payload);
  events.prepend(item);
  while (events.children.length > SHOWN) events.lastElementChild.remove();
}

connecting.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  await bus?.close();
  events.replaceChildren();
  const token = field(connecting, "token");
  try {
    bus = await connect(field(connecting, "url"), { onState: showState, ...(token && { token }) });
    await bus.subscribe(field(connecting, "topic"), field(connecting, "group"), showEvent, { from: "earliest" });
  } catch (error) {
    showState("closed", error);
  }
});

publishing.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  try {
    const payload = JSON.parse(field(publishing, "payload"));
    const { seq } = await bus.publish(field(connecting, "topic"), payload, { timeoutMs: 10_000 });
    result.textContent = `stored as event ${seq}`;
  } catch (error) {
    result.textContent = `not published: ${error.message}`;
  }
});
