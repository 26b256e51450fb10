import { MongoClient } from "mongodb";

const client = await MongoClient.connect(process.env.MONGO_URL); // mongodb://db1,db2,db3/shop?replicaSet=rs0
const [orders, outbox] = [client.db().collection("orders"), client.db().collection("outbox")];
const order = { _id: crypto.randomUUID(), customer: "c-7", total: 12.5, at: new Date() };
const event = { _id: `created-${order._id}`, topic: "orders.created", key: order.customer, payload: order };
await client.withSession((session) => session.withTransaction(async () => {
  await orders.insertOne(order, { session });
  await outbox.insertOne({ ...event, status: "pending", ts: new Date(), attempts: 0 }, { session });
}));
await client.close();
