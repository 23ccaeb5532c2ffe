import Journal
import Sessions
import TLSEngine
import Testing
import Upstream
import UpstreamProtocol

@testable import Configuration

/// Relative paths. In the configuration file, they are relative to the file's folder. Elsewhere, they are relative to
/// the working directory.
@Suite struct ConfigurationPathsTests {
  private static func read(
    _ yaml: String, file: String = "conf/drawbridge.yaml", environment: [String: String] = [:],
    flags: [(name: String, value: String)] = [], existing: Set<String> = []
  ) -> ConfigurationLoader.Outcome {
    ConfigurationLoader.read(
      file: file, environment: environment, flags: flags,
      paths: ConfigurationPaths(workingDirectory: "/work") { existing.contains($0) },
      readFile: { $0 == file ? Array(yaml.utf8) : existing.contains($0) ? Array("content".utf8) : nil })
  }

  private static let yaml = "upstream: {url: 'ws://x/'}\nstore: {engine: sqlite, path: ./data.db}\n"

  @Test func aPathInTheFileBeginsAtItsFolder() {
    #expect(Self.read(Self.yaml).settings.store.path == "/work/conf/data.db")
    #expect(Self.read(Self.yaml, file: "/etc/drawbridge/x.yaml").settings.store.path == "/etc/drawbridge/data.db")
    #expect(Self.read(Self.yaml, file: "/x.yaml").settings.store.path == "/data.db")
    #expect(Self.read(Self.yaml, file: "x.yaml").settings.store.path == "/work/data.db")
  }

  @Test func aPathInAFileThatIsAPipeBeginsAtTheWorkingDirectory() {
    #expect(Self.read(Self.yaml, file: "/dev/fd/63").settings.store.path == "/work/data.db")
    #expect(Self.read(Self.yaml, file: "/proc/self/fd/3").settings.store.path == "/work/data.db")
  }

  @Test func aPathInAVariableOrFlagBeginsAtTheWorkingDirectory() {
    let outcome = Self.read(
      Self.yaml, environment: ["DRAWBRIDGE_STORE_PATH": "env.db"], flags: [("ca-file", "ca.pem")])
    #expect(outcome.settings.store.path == "/work/env.db")
    #expect(outcome.settings.session.upstream.tls.trust.caFile == "/work/ca.pem")
  }

  @Test func absoluteAndEmptyPathsStay() {
    let outcome = Self.read("upstream: {url: 'ws://x/', credential: {file: /run/token}, tls: {ca_file: ''}}\n")
    #expect(outcome.settings.session.upstream.conventions.credential.file == "/run/token")
    #expect(outcome.settings.session.upstream.tls.trust.caFile == nil)
  }

  @Test func referencesAndTemplatesFollowTheSameRule() {
    let yaml = """
      upstream:
        url: ws://x/${file:secret}
        on_open: [{send: 'a ${file:token} $${file:b}'}]
      """
    let outcome = Self.read(yaml, existing: ["/work/conf/secret", "/work/conf/token"])
    #expect(outcome.errors.isEmpty, "\(outcome.errors)")
    #expect(outcome.settings.session.upstream.conventions.onOpen.first?.send?.files == ["/work/conf/token"])
    let missing = Self.read("upstream: {url: 'ws://x/${file:secret}'}\n")
    #expect(missing.errors.first?.message == "file '/work/conf/secret' cannot be read")
  }

  @Test func aFileThatExistsInTheWorkingDirectoryOnlyIsUsedWithAWarning() {
    let old = Self.read(Self.yaml, existing: ["/work/data.db"])
    #expect(old.settings.store.path == "/work/data.db")
    #expect(old.errors.isEmpty)
    #expect(old.warnings.map(\.place) == ["conf/drawbridge.yaml:2:31"])
    #expect(old.warnings.first?.message.contains("there is no /work/conf/data.db") ?? false)
    let new = Self.read(Self.yaml, existing: ["/work/data.db", "/work/conf/data.db"])
    #expect(new.settings.store.path == "/work/conf/data.db")
    #expect(new.warnings.isEmpty)
  }

  @Test(arguments: [("topic: /topic", "'upstream.topic'"), ("queue: 5", "its keys are messages, bytes")])
  func aValueInPlaceOfASectionNamesItsKeys(line: String, part: String) {
    let message = Self.read("upstream:\n  url: ws://x/\n  \(line)\n").errors.first?.message ?? ""
    #expect(message.contains("must contain keys and values, and its keys are "), "\(message)")
    #expect(message.contains(part), "\(message)")
    let store = Self.read("upstream: {url: ws://x/}\nstore: sqlite\n").errors.first?.message ?? ""
    #expect(store.contains("engine"), "\(store)")
  }
}
