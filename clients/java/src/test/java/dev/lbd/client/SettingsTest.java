package dev.lbd.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.BindException;
import java.net.ConnectException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Settings, names of clusters, and errors, which need no daemon. */
class SettingsTest {
  @ParameterizedTest
  @CsvSource({
    "orders.lbd,orders",
    "Orders.LBD,orders",
    "eu.orders.lbd,eu.orders",
    "shop.test,eu/orders",
    "lbd,",
    ".lbd,",
    "orders.lbd.example,",
    "'',"
  })
  void knowsTheHostsOfClusters(String host, String cluster) {
    Map<String, Host> hosts = Map.of("Shop.test", Host.cluster("eu/orders"));
    try (LbdClient lbd = LbdClient.builder().hosts(hosts).build()) {
      assertEquals(Optional.ofNullable(cluster), lbd.hostOf(host).map(Host::name));
      assertEquals(Optional.empty(), lbd.hostOf(null));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "unix:/run/lbd.sock,/run/lbd.sock,'',0,false,localhost",
    "unix:///run/lbd.sock,/run/lbd.sock,'',0,false,localhost",
    "http://lbd:8080,,lbd,8080,false,lbd:8080",
    "http://lbd/,,lbd,80,false,lbd:80",
    "https://lbd,,lbd,443,true,lbd:443",
    "http://[::1]:8080,,::1,8080,false,[::1]:8080"
  })
  void readsAddresses(String text, Path socket, String host, int port, boolean tls, String header) {
    Address address = Address.of(text, "");
    assertEquals(socket, address.socket());
    assertEquals(host, address.host());
    assertEquals(port, address.port());
    assertEquals(tls, address.tls() != null);
    assertEquals(header, address.hostHeader());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"ftp://x", "localhost:8080", "http://x/path", "http://", "unix:", "http://a b"})
  void rejectsAddresses(String address) {
    LbdClientBuilder settings = LbdClient.builder().address(address);
    IllegalArgumentException error = assertThrows(IllegalArgumentException.class, settings::build);
    assertTrue(error.getMessage().startsWith("lbd: \"" + address), error.getMessage());
  }

  @Test
  void rejectsAUserInAddressesWithoutShowingIt() {
    Exception error =
        assertThrows(
            IllegalArgumentException.class, () -> Address.of("http://user:secret@lbd:8080", ""));
    assertFalse(error.getMessage().contains("secret"), error.getMessage());
    String invalid = "http://user:secret@lbd:8080/path";
    error = assertThrows(IllegalArgumentException.class, () -> Address.of(invalid, ""));
    assertFalse(error.getMessage().contains("secret"), error.getMessage());
  }

  @Test
  void settingsGoBeforeTheEnvironment(@TempDir Path directory) throws Exception {
    Path file = Files.writeString(directory.resolve("token"), "of-the-file");
    Map<String, String> environment = Map.of("LBD_TOKEN", "of-the-environment");
    Supplier<LbdClientBuilder> settings = () -> new LbdClientBuilder(environment::get);
    assertEquals("of-the-environment", token(settings.get()));
    assertEquals("", token(settings.get().tokenFile(file)));
    assertEquals("of-the-program", token(settings.get().tokenFile(file).token("of-the-program")));
  }

  private static String token(LbdClientBuilder settings) {
    try (LbdClient lbd = settings.build()) {
      return lbd.settings().token();
    }
  }

  @Test
  void rejectsSettings() {
    LbdClientBuilder settings = LbdClient.builder();
    assertThrows(IllegalArgumentException.class, () -> settings.retries(-1));
    assertThrows(IllegalArgumentException.class, () -> settings.maxTokens(Double.NaN));
    assertThrows(IllegalArgumentException.class, () -> settings.maxAge(Duration.ZERO));
    assertThrows(IllegalArgumentException.class, () -> settings.fallback("host"));
    assertThrows(IllegalArgumentException.class, () -> settings.token("a\r\nb").build());
    LbdClientBuilder tls = LbdClient.builder().address("https://x").ca(Path.of("/none"));
    assertThrows(IllegalArgumentException.class, tls::build);
  }

  @ParameterizedTest
  @CsvSource({
    "503,dropped,DroppedException,dropped",
    "503,circuit_broken,CircuitBrokenException,circuit_broken",
    "404,unknown_cluster,UnknownClusterException,unknown_cluster",
    "401,,PermissionDeniedException,401",
    "403,permission_denied,PermissionDeniedException,permission_denied",
    "401,unauthenticated,PermissionDeniedException,unauthenticated",
    "503,no_ready_endpoint,UnavailableException,no_ready_endpoint",
    "429,,UnavailableException,429"
  })
  void hasATypeForEachCode(int status, String code, String type, String expected) {
    Map<String, Object> problem =
        code == null ? Map.of() : Map.of("code", code, "detail", "the detail");
    Duration wait = Duration.ofSeconds(2);
    LbdException error = LbdException.ofAnswer("orders", status, problem, wait);
    assertEquals(type, error.getClass().getSimpleName());
    assertEquals(expected, error.code());
    assertEquals("orders", error.cluster());
    assertEquals(wait, error.retryAfter());
    assertTrue(
        error.getMessage().startsWith("cluster orders: " + (code == null ? "" : "the detail")));
    LbdException copy = error.copy();
    assertSame(error.getClass(), copy.getClass());
    assertEquals(error.getMessage(), copy.getMessage());
  }

  @Test
  void knowsItsOwnShortage() {
    assertTrue(Shortage.causes(new IOException("x", new IOException("Too many open files"))));
    assertTrue(Shortage.causes(new ConnectException().initCause(new BindException())));
    assertTrue(Shortage.causes(new OutOfMemoryError()));
    assertFalse(Shortage.causes(new ConnectException("Connection refused")));
    assertFalse(Shortage.causes(new IOException((String) null)));
  }
}
