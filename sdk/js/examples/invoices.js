// Makes an invoice of each order, exactly once: the invoice is published, and the order marked and acknowledged, in one
// commit. Kill it at any moment and start it again; start several.
//
//   node examples/invoices.js
//
// The bus is at PROMBUS_URL, or http://127.0.0.1:8083. Ctrl-c ends it.
import { connect } from "prombus";

const bus = await connect(process.env.PROMBUS_URL ?? "http://127.0.0.1:8083");

/** @type {import("prombus").Transformer<{ items: { price: number, count: number }[] }>} */
const invoice = ({ id, key, payload }) => {
  if (payload.items.length === 0) throw new Error("an order without items"); // it comes again, and is then a dead letter
  const total = payload.items.reduce((sum, { price, count }) => sum + price * count, 0);
  return [{ topic: "invoices.created", payload: { order: id, total }, causedBy: [id], ...(key && { key }) }];
};
await bus.transformExactlyOnce("orders.created", "invoices", invoice, {
  from: "earliest",
  concurrency: 4,
  onError: (error, event) => console.error(`order ${event.id}: ${error}`),
});
console.log("waiting for orders");

process.once("SIGINT", () => bus.close());
