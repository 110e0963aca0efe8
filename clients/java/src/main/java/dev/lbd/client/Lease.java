package dev.lbd.client;

import java.time.Duration;

/**
 * A lease of a request in flight.
 *
 * @param id ID that lbd gave it
 * @param ttl time for which it holds without being renewed
 */
record Lease(String id, Duration ttl) {}
