/**
 * The client of lbd: {@link dev.lbd.client.LbdClient} gets picks and reports how requests ended,
 * {@link dev.lbd.client.LbdHttpClient} sends requests with java.net.http.
 */
package dev.lbd.client;
