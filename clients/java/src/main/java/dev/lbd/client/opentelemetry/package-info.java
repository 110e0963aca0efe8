/** Spans of OpenTelemetry. It needs the API of OpenTelemetry. */
package dev.lbd.client.opentelemetry;
