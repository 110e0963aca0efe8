package dev.lbd.client;

import java.time.Duration;
import java.util.function.Function;

/** The settings of a client, complete and valid. */
record Settings(
    Address address,
    String at,
    Hooks hooks,
    Mode mode,
    String token,
    String tokenFile,
    String owner,
    String reporter,
    Function<String, Host> hosts,
    String fallback,
    Duration timeout,
    Duration connectTimeout,
    Duration staleFor,
    Duration maxAge,
    int retries,
    double maxTokens,
    Duration ttl,
    Duration reportInterval) {}
