// A page that publishes events and shows them as they arrive. The README of the package says how to serve it.
import { connect } from "prombus";

/** The number of events to show; more would slow the page down. */
const MAX_SHOWN = 200;

const find = (selector) => document.querySelector(selector);
const connectForm = find("#bus");
const publishForm = find("#publish");
const [state, events, template] = [find("#state"), find("#events"), find("template")];
const publishButton = find("#publish button");
const result = find("output");
let bus;

const field = (form, name) => new FormData(form).get(name);

function showState(current, error) {
  state.dataset.state = current;
  state.textContent = error ? `${current}: ${error.message}` : current;
  publishButton.disabled = current === "closed";
}

function showEvent({ seq, ts, payload }) {
  const item = template.content.cloneNode(true);
  item.querySelector("b").textContent = `#${seq}`;
  item.querySelector("time").textContent = new Date(ts).toLocaleTimeString();
  item.querySelector("code").textContent = JSON.stringify(payload);
  events.prepend(item);
  while (events.children.length > MAX_SHOWN) events.lastElementChild.remove();
}

connectForm.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  await bus?.close();
  events.replaceChildren();
  const token = field(connectForm, "token");
  try {
    bus = await connect(field(connectForm, "url"), { onState: showState, ...(token && { token }) });
    await bus.subscribe(field(connectForm, "topic"), field(connectForm, "group"), showEvent, { from: "earliest" });
  } catch (error) {
    showState("closed", error);
  }
});

publishForm.addEventListener("submit", async (submit) => {
  submit.preventDefault();
  try {
    const payload = JSON.parse(field(publishForm, "payload"));
    const { seq } = await bus.publish(field(connectForm, "topic"), payload, { timeoutMs: 10_000 });
    result.textContent = `stored as event ${seq}`;
  } catch (error) {
    result.textContent = `cannot publish: ${error.message}`;
  }
});
