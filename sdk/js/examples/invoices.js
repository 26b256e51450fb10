// Creates an invoice for each order, exactly once: publishing the invoice, marking the order and acknowledging it are one
// commit. Kill it at any moment and start it again, or start several.
//
//   node examples/invoices.js
//
// Connects to PROMBUS_URL, by default http://127.0.0.1:8083. Ctrl-C stops it.
import { connect, RejectError } from "prombus";

const bus = await connect(process.env.PROMBUS_URL ?? "http://127.0.0.1:8083");

/** @type {import("prombus").Transformer<{ items: { price: number, count: number }[] }>} */
const createInvoice = ({ id, key, payload }) => {
  // No retry can help: the order becomes a dead letter at once.
  if (payload.items.length === 0) throw new RejectError("an order without items");
  const total = payload.items.reduce((sum, { price, count }) => sum + price * count, 0);
  return [{ topic: "invoices.created", payload: { order: id, total }, causedBy: [id], ...(key && { key }) }];
};
await bus.transformExactlyOnce("orders.created", "invoices", createInvoice, {
  from: "earliest",
  concurrency: 4,
  onError: (error, event) => console.error(`order ${event.id}: ${error}`),
});
console.log("waiting for orders");

process.once("SIGINT", () => bus.close());
