import dev.lbd.client.CircuitBrokenException;
import dev.lbd.client.DroppedException;
import dev.lbd.client.LbdClient;
import dev.lbd.client.LbdException;
import dev.lbd.client.LbdHttpClient;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;

/** Sends ten requests to a cluster, and prints what came: java Orders http://orders.lbd/items/7. */
final class Orders {
  private final HttpClient http;

  private Orders(LbdClient lbd) {
    http = new LbdHttpClient(lbd, HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(1)));
  }

  public static void main(String[] args) throws InterruptedException {
    URI url = URI.create(args.length > 0 ? args[0] : "http://orders.lbd/items/7");
    try (LbdClient lbd = LbdClient.create()) { // finds lbd by the environment variable LBD
      Orders orders = new Orders(lbd);
      for (int i = 0; i < 10; i++) {
        System.out.println(orders.get(url));
      }
    }
  }

  private String get(URI url) throws InterruptedException {
    HttpRequest request = HttpRequest.newBuilder(url).timeout(Duration.ofSeconds(2)).build();
    try {
      HttpResponse<String> response = http.send(request, BodyHandlers.ofString());
      return response.statusCode() + " " + response.body();
    } catch (DroppedException | CircuitBrokenException e) {
      return "overload: " + e.getMessage(); // do without the answer: a retry adds load
    } catch (LbdException e) {
      return "no endpoint: " + e.getMessage();
    } catch (IOException e) {
      return "failed: " + e;
    }
  }
}
