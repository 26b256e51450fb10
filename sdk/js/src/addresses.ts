/** Where a bus is. */
export interface BusAddresses {
  /** The WebSocket gateway. */
  readonly webSocket: URL;
  /** HTTP, if it is known. */
  readonly http: URL | undefined;
}

const WEB_SOCKET_OF: Record<string, string> = { "http:": "ws:", "https:": "wss:" };
const HTTP_OF: Record<string, string> = { "ws:": "http:", "wss:": "https:" };

/** Reads the address of a bus: that of HTTP, with the gateway at `/ws`, or that of the gateway. */
export function busAddresses(url: string, httpUrl: string | undefined): BusAddresses {
  const given = new URL(url);
  const stated = httpUrl === undefined ? undefined : new URL(httpUrl);
  if (given.protocol in WEB_SOCKET_OF) {
    const webSocket = new URL("/ws", given);
    webSocket.protocol = WEB_SOCKET_OF[given.protocol] as string;
    return { webSocket, http: stated ?? given };
  }
  if (!(given.protocol in HTTP_OF)) throw new TypeError(`${given.protocol} is not http:, https:, ws: or wss:`);
  if (given.pathname !== "/ws") return { webSocket: given, http: stated };
  const http = new URL("/", given);
  http.protocol = HTTP_OF[given.protocol] as string;
  return { webSocket: given, http: stated ?? http };
}
