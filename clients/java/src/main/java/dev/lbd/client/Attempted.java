package dev.lbd.client;

import java.time.Duration;

/**
 * A try of a request that has ended.
 *
 * @param choice what lbd has chosen, with the number of the try
 * @param outcome how it ended
 * @param duration time until status and headers were there, or the try had failed
 * @param request the java.net.http.HttpRequest or okhttp3.Request of the program; null for others
 * @param status status of the response, or 0
 * @param error why there is no response, or null
 * @param context what {@link LbdListener#onRequest} returned
 */
public record Attempted(
    Choice choice,
    Outcome outcome,
    Duration duration,
    Object request,
    int status,
    Throwable error,
    Object context) {}
