/** The error of every failed call. */

export interface HaiErrorDetails {
  status?: number;
  payload?: any;
  cause?: unknown;
  runId?: string;
  threadId?: string;
  /** Seconds after which the server allows another attempt. */
  retryAfter?: number;
}

/**
 * Codes of this package: HTTP_STATUS, NETWORK, TIMEOUT, BAD_CONTENT_TYPE, BAD_FRAME, PROTOCOL, TRUNCATED, ABORTED, BUSY.
 * An error that the agent reports has the code of its RUN_ERROR event, or RUN_ERROR.
 */
export class HaiError extends Error {
  code: string;
  status?: number;
  payload?: any;
  override cause?: unknown;
  runId?: string;
  threadId?: string;
  retryAfter?: number;

  constructor(code: string, message: string, details: HaiErrorDetails = {}) {
    super(message);
    this.name = "HaiError";
    this.code = code;
    Object.assign(this, details);
  }
}
