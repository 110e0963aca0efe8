/** The client of lbd for OkHttp: {@link dev.lbd.client.okhttp.LbdOkHttp}. */
package dev.lbd.client.okhttp;
