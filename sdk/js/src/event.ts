/** What an event holds, as the bus gives it. `T` is the type of its payload: said by you, not checked. */
export interface BusEvent<T = unknown> {
  /** Its place in the topic, from 1, without holes. */
  readonly seq: number;
  /** Its identity in the topic. */
  readonly id: string;
  /** Milliseconds since 1970, by its publisher or else by the bus. */
  readonly ts: number;
  /** Where it is. */
  readonly topic: string;
  /** What it is about. */
  readonly key?: string;
  /** Texts that go along with it. */
  readonly headers?: Readonly<Record<string, string>>;
  /** What it says. */
  readonly payload: T;
  /** Ids of the events that led to it. */
  readonly caused_by?: readonly string[];
  /** Words to find it by. */
  readonly tags?: readonly string[];
  /** The session it came from. */
  readonly sid?: string;
}

/** What a publisher may say about an event beside its payload. */
export interface EventOptions {
  /** Its id: the topic stores an id once. Made by the client (UUIDv7) if absent. */
  id?: string;
  /** Its time in milliseconds since 1970. The bus's own if absent. */
  ts?: number;
  /** What it is about. */
  key?: string;
  /** Texts that go along with it, at most 64. */
  headers?: Record<string, string>;
  /** Words to find it by. */
  tags?: string[];
  /** Ids of the events that led to it. */
  causedBy?: string[];
  /** The session it comes from. */
  sid?: string;
}

/** One event of a batch. */
export interface EventToPublish<T = unknown> extends EventOptions {
  /** What it says: anything that JSON can hold. */
  payload: T;
}

/** An event that a transforming handler publishes. */
export interface OutgoingEvent<T = unknown> extends EventToPublish<T> {
  /** Where to. */
  topic: string;
}

/** What became of a published event. */
export interface Published {
  /** Its id. */
  readonly id: string;
  /** Its place in the topic. */
  readonly seq: number;
  /** The topic held this id already, and nothing was stored. After a lost connection that is a success, too. */
  readonly duplicate: boolean;
}
