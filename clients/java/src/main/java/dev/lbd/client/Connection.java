package dev.lbd.client;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * A connection to lbd. One thread at a time uses it; any thread may close it, which ends a call in
 * progress. Calls end at their deadline, because the connection is closed then: the sockets of the
 * JDK have no other limit for all reads and writes together.
 */
final class Connection implements Closeable {
  private final Closeable socket;
  private final InputStream in;
  private final OutputStream out;
  private long idleSince;

  private Connection(Closeable socket, InputStream in, OutputStream out) {
    this.socket = socket;
    this.in = in;
    this.out = out;
  }

  /** Connects to lbd. */
  static Connection open(Address address, Deadline deadline) throws IOException {
    if (address.socket() != null) {
      SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
      try (Guard guard = new Guard(channel, deadline)) {
        channel.connect(UnixDomainSocketAddress.of(address.socket()));
        guard.passed();
      }
      return new Connection(channel, new ChannelInput(channel), new ChannelOutput(channel));
    }
    IOException last = new UnknownHostException(address.host());
    for (InetAddress ip : InetAddress.getAllByName(address.host())) {
      try {
        return tcp(address, ip, deadline);
      } catch (IOException e) {
        last = e;
      }
    }
    throw last;
  }

  private static Connection tcp(Address address, InetAddress ip, Deadline deadline)
      throws IOException {
    Socket socket = new Socket(Proxy.NO_PROXY);
    try (Guard guard = new Guard(socket, deadline)) {
      socket.connect(new InetSocketAddress(ip, address.port()));
      socket.setTcpNoDelay(true);
      Socket open = address.tls() == null ? socket : handshake(address, socket);
      guard.passed();
      InputStream in = new BufferedInputStream(open.getInputStream());
      // Closing the TLS socket could block, as it writes.
      return new Connection(socket, in, open.getOutputStream());
    }
  }

  private static Socket handshake(Address address, Socket socket) throws IOException {
    SSLSocket tls =
        (SSLSocket) address.tls().createSocket(socket, address.host(), address.port(), true);
    SSLParameters parameters = tls.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    tls.setSSLParameters(parameters);
    tls.startHandshake();
    return tls;
  }

  /**
   * Sends a request and reads the answer. Closes the connection if that fails, or if the answer
   * says that it is the last one.
   */
  HttpAnswer exchange(byte[] request, Deadline deadline) throws IOException {
    try (Guard guard = new Guard(this, deadline)) {
      HttpAnswer answer = HttpAnswer.read(send(request), in);
      if (answer.reusable()) {
        guard.passed();
      }
      return answer;
    } catch (IOException e) {
      throw deadline.passed() ? new SocketTimeoutException("no answer in time") : e;
    }
  }

  /** Sends a request, and returns the first byte of the answer. */
  private int send(byte[] request) throws IOException {
    try {
      out.write(request);
      out.flush();
      int first = in.read();
      if (first < 0) {
        throw new EOFException("the connection ended before the answer");
      }
      return first;
    } catch (AsynchronousCloseException e) {
      throw e;
    } catch (IOException e) {
      throw new NoAnswerException(e);
    }
  }

  /** The connection ended before the first byte of an answer. */
  static final class NoAnswerException extends IOException {
    private static final long serialVersionUID = 1L;

    NoAnswerException(IOException cause) {
      super(cause.getMessage(), cause);
    }
  }

  void idle() {
    idleSince = System.nanoTime();
  }

  boolean idleFor(long nanos) {
    return System.nanoTime() - idleSince > nanos;
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException e) {
      // it cannot be used any more, which is what close is for
    }
  }

  /** Closes a socket at a deadline, and at the end of the block unless the block has passed. */
  private static final class Guard implements AutoCloseable {
    private final Closeable socket;
    private final CompletableFuture<Boolean> end = new CompletableFuture<>();

    Guard(Closeable socket, Deadline deadline) {
      this.socket = socket;
      end.completeOnTimeout(false, deadline.left().toNanos(), TimeUnit.NANOSECONDS)
          .thenAccept(this::end);
    }

    private void end(boolean passed) {
      if (!passed) {
        try {
          socket.close();
        } catch (IOException e) {
          // as above
        }
      }
    }

    void passed() throws IOException {
      if (!end.complete(true)) {
        throw new SocketTimeoutException("no answer in time");
      }
    }

    @Override
    public void close() {
      end.complete(false);
    }
  }

  // Channels.newInputStream holds a monitor while it reads, which pins virtual threads.
  private static final class ChannelInput extends InputStream {
    private final SocketChannel channel;
    private final ByteBuffer buffer = ByteBuffer.allocateDirect(8192).flip();

    ChannelInput(SocketChannel channel) {
      this.channel = channel;
    }

    private boolean fill() throws IOException {
      if (!buffer.hasRemaining()) {
        buffer.clear();
        int n = channel.read(buffer);
        buffer.flip();
        return n >= 0;
      }
      return true;
    }

    @Override
    public int read() throws IOException {
      return fill() ? buffer.get() & 0xff : -1;
    }

    @Override
    public int read(byte[] bytes, int offset, int length) throws IOException {
      if (length == 0) {
        return 0;
      }
      if (!fill()) {
        return -1;
      }
      int n = Math.min(length, buffer.remaining());
      buffer.get(bytes, offset, n);
      return n;
    }
  }

  private static final class ChannelOutput extends OutputStream {
    private final SocketChannel channel;

    ChannelOutput(SocketChannel channel) {
      this.channel = channel;
    }

    @Override
    public void write(int b) throws IOException {
      write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
      while (buffer.hasRemaining()) {
        channel.write(buffer);
      }
    }
  }
}
