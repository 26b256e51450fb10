/** The addresses of a bus. */
export interface BusAddresses {
  readonly webSocket: URL;
  /** `undefined` if only the WebSocket gateway is known. */
  readonly http: URL | undefined;
}

const TO_WEB_SOCKET: Record<string, string> = { "http:": "ws:", "https:": "wss:" };
const TO_HTTP: Record<string, string> = { "ws:": "http:", "wss:": "https:" };

/** Derives the addresses of a bus from its HTTP address, whose gateway is at `/ws`, or from that of its gateway. */
export function busAddresses(url: string, httpUrl: string | undefined): BusAddresses {
  const given = new URL(url);
  const givenHttp = httpUrl === undefined ? undefined : new URL(httpUrl);
  if (given.protocol in TO_WEB_SOCKET) {
    const webSocket = new URL("/ws", given);
    webSocket.protocol = TO_WEB_SOCKET[given.protocol] as string;
    return { webSocket, http: givenHttp ?? given };
  }
  if (!(given.protocol in TO_HTTP)) {
    throw new TypeError(`unsupported protocol ${given.protocol} in ${url}: use http:, https:, ws: or wss:`);
  }
  if (given.pathname !== "/ws") return { webSocket: given, http: givenHttp };
  const http = new URL("/", given);
  http.protocol = TO_HTTP[given.protocol] as string;
  return { webSocket: given, http: givenHttp ?? http };
}
