/** An event as the bus delivers it. `T` is the type of its payload, which is not checked. */
export interface BusEvent<T = unknown> {
  /** The sequence number in the topic, from 1, without gaps. */
  readonly seq: number;
  /** Unique in the topic. */
  readonly id: string;
  /** Milliseconds since 1970, set by the publisher or else by the bus. */
  readonly ts: number;
  /** The topic that stores the event. */
  readonly topic: string;
  /** What the event is about, such as a customer or a device. */
  readonly key?: string;
  /** Metadata. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The content: any JSON value. */
  readonly payload: T;
  /** Ids of the events that caused this one. */
  readonly caused_by?: readonly string[];
  /** Labels. */
  readonly tags?: readonly string[];
  /** The session that published the event. */
  readonly sid?: string;
}

/** What a publisher can set besides the payload. */
export interface EventOptions {
  /** A topic stores each id once. Default: a UUIDv7 that the client generates. */
  id?: string;
  /** Milliseconds since 1970. Default: the time at which the bus stores the event. */
  ts?: number;
  /** What the event is about, such as a customer or a device. */
  key?: string;
  /** Metadata, at most 64 entries. */
  headers?: Record<string, string>;
  /** Labels. */
  tags?: string[];
  /** Ids of the events that caused this one. */
  causedBy?: string[];
  /** The session that publishes the event. */
  sid?: string;
}

/** An event of a batch. */
export interface EventToPublish<T = unknown> extends EventOptions {
  /** The content: anything that JSON can represent. */
  payload: T;
}

/** An event that a transforming handler publishes. */
export interface OutgoingEvent<T = unknown> extends EventToPublish<T> {
  /** The topic to publish to. */
  topic: string;
}

/** The result of publishing an event. */
export interface Published {
  /** The id of the event. */
  readonly id: string;
  /** The sequence number in the topic. */
  readonly seq: number;
  /** The topic already had this id and stored nothing. After a lost connection this is a success. */
  readonly duplicate: boolean;
}
