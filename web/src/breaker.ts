// Circuit breakers, whose limit may be one of the fleet.

/** How many requests this lbd may have in flight: its share, if max_requests is one limit for the fleet. */
export const limitOf = (b: { max_requests: number; share?: number; fleet?: { share: number } }) => b.share ?? b.fleet?.share ?? b.max_requests;
