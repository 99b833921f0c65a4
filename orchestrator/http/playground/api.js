// The server's API: answers as they stream, JSON documents, and what went wrong in words.

// title: what happened; detail: what to do about it. needsKey: the server wants another API key.
export class Problem extends Error {
  constructor(title, detail, { needsKey = false } = {}) {
    super(`${title}: ${detail}`);
    this.title = title;
    this.detail = detail;
    this.needsKey = needsKey;
  }
}

const TITLES = {
  401: "The server wants an API key",
  403: "This API key may not do that",
  429: "The server is busy",
  503: "Nobody can answer now",
  504: "It took too long",
};

export async function getJson(path, apiKey, signal) {
  const response = await request(path, apiKey, { signal });
  return response.json();
}

// The events of a streamed chat completion, parsed. Throws Problem, or AbortError when `signal` fires.
export async function* streamChat(body, apiKey, signal) {
  const response = await request("v1/chat/completions", apiKey, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  for await (const data of serverSentData(response.body, signal)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new Problem("The answer broke off", event.error.message);
    yield event;
  }
  throw new Problem("The answer broke off", "the connection closed before the end; the server may have been stopped");
}

async function request(path, apiKey, options) {
  const headers = { ...options.headers, ...(apiKey && { authorization: `Bearer ${apiKey}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    throw connectionProblem(error, options.signal);
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

function connectionProblem(error, signal) {
  if (signal?.aborted) return error;
  return new Problem("The server cannot be reached", "check that it still runs and that the network is there");
}

async function problemOf(response) {
  let message = response.statusText;
  try {
    message = (await response.json()).error.message;
  } catch {
    // A proxy in between answers in its own way: the status has to do.
  }
  const wait = Number(response.headers.get("retry-after"));
  const detail = wait > 0 ? `${message} (in ${wait} s)` : message;
  const needsKey = response.status === 401 || response.status === 403;
  return new Problem(TITLES[response.status] ?? `The server refused with status ${response.status}`, detail, { needsKey });
}

// The `data` of each server-sent event.
async function* serverSentData(stream, signal) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await read(reader, signal);
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        if (event.startsWith("data: ")) yield event.slice(6);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have failed already, which was told
  }
}

async function read(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    throw connectionProblem(error, signal);
  }
}
