import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.JarFile;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.xpath.XPathFactory;

/** Checks what Maven Central requires of a pom and of its jars, but for signatures: POM TARGET. */
class Central {
  private static final String[] ELEMENTS = {
    "groupId", "artifactId", "version", "name", "description", "url", "licenses/license/name", "licenses/license/url",
    "developers/developer/name", "developers/developer/organization", "scm/connection", "scm/developerConnection",
    "scm/url",
  };

  public static void main(String[] arguments) throws Exception {
    var pom = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(arguments[0]);
    var path = XPathFactory.newInstance().newXPath();
    for (String element : ELEMENTS) {
      if (path.evaluate("/project/" + element, pom).isBlank()) {
        throw new IllegalStateException(arguments[0] + ": " + element + " is required");
      }
    }
    String version = path.evaluate("/project/version", pom);
    if (version.endsWith("-SNAPSHOT")) throw new IllegalStateException(version + " cannot be published");
    String name = path.evaluate("/project/artifactId", pom) + "-" + version;
    for (String[] expected : new String[][] {{"", ".class"}, {"-sources", ".java"}, {"-javadoc", "index.html"}}) {
      Path file = Path.of(arguments[1], name + expected[0] + ".jar");
      if (!Files.exists(file)) throw new IllegalStateException(file + " is required");
      try (var jar = new JarFile(file.toFile())) {
        if (jar.stream().noneMatch(entry -> entry.getName().endsWith(expected[1]))) {
          throw new IllegalStateException(file + " has no " + expected[1]);
        }
      }
    }
  }
}
