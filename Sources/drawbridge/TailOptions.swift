import ByteStreams
import Configuration
import Host
import TLSEngine

/// The command line of `drawbridge tail`.
struct TailOptions {
  /// The default address of `drawbridge serve`.
  static let defaultURL = "http://127.0.0.1:8080"

  let url: GatewayURL
  let session: String
  /// The parameters of the first request that state the position, percent-encoded, such as `since=10m`.
  let start: String
  /// The parameters of every request.
  let topics: String
  /// Read before each request, so that the token can be replaced.
  let tokenFile: String?
  /// The TLS settings for `https`.
  let context: TLSContext?
  let output: TailOutput

  init(_ invocation: Invocation) throws(UsageError) {
    func last(_ flag: String) -> String? { invocation.flags.last { $0.name == flag }?.value }
    url = try GatewayURL(invocation.name ?? Self.defaultURL)
    session = last("session") ?? SessionName.default
    guard SessionName.isValid(session) else {
      throw UsageError(message: "'\(session)' is not the name of a session: use \(SessionName.expectation).")
    }
    let positions = ["cursor", "since", "last"].compactMap { name in last(name).map { (name, $0) } }
    guard positions.count <= 1 else {
      throw UsageError(message: "--cursor, --since and --last exclude each other: give one of them as the start.")
    }
    start = positions.first.map { "\($0.0)=\(PercentEncoder.encode(Array($0.1.utf8).span))" } ?? "cursor=latest"
    topics = invocation.flags.filter { $0.name == "topic" }.map {
      "&topic=\(PercentEncoder.encode(Array($0.value.utf8).span))"
    }.joined()
    tokenFile = last("token-file")
    let format = try Self.choice(
      last("format"), of: "format", TailOutput.Format.allCases.map(\.rawValue),
      default: TailOutput.isTerminal ? "text" : "ndjson")
    let noColor = SystemFile.environment()["NO_COLOR"].map { !$0.isEmpty } ?? false
    let color = try Self.choice(last("color"), of: "color", ["auto", "always", "never"], default: "auto")
    output = TailOutput(
      format: TailOutput.Format(rawValue: format) ?? .text,
      isColored: color == "always" || color == "auto" && TailOutput.isTerminal && !noColor,
      isTerminal: TailOutput.isTerminal)
    for flag in ["ca-file", "certificate", "key"] where !url.isSecure && last(flag) != nil {
      throw UsageError(message: "--\(flag) has no effect, because the URL is not one of https: use https or omit it.")
    }
    guard (last("certificate") == nil) == (last("key") == nil) else {
      throw UsageError(message: "--certificate and --key belong together: give both. They may be the same file.")
    }
    var settings = TLSClientSettings()
    settings.trust.caFile = last("ca-file")
    if let certificate = last("certificate"), let key = last("key") {
      settings.clientCertificate = .init(certificateFile: certificate, keyFile: key)
    }
    context = url.isSecure ? try Self.context(settings) : nil
  }

  private static func choice(
    _ value: String?, of flag: String, _ choices: [String], default fallback: String
  ) throws(UsageError) -> String {
    guard let value else { return fallback }
    guard choices.contains(value) else {
      throw UsageError(message: "'--\(flag) \(value)' is not valid: use \(choices.joined(separator: ", ")).")
    }
    return value
  }

  private static func context(_ settings: TLSClientSettings) throws(UsageError) -> TLSContext {
    var contents: [String: [UInt8]] = [:]
    for (role, path) in settings.files where contents[path] == nil {
      do throws(FileError) {
        contents[path] = try SystemFile.contents(
          of: path, atMost: TLSClientSettings.fileSizeLimit + 1, within: .seconds(10))
      } catch {
        throw UsageError(message: "the \(role.rawValue) \(path) cannot be read: \(error).")
      }
    }
    do throws(TLSSettingsError) {
      return try TLSContext(settings, contents: contents)
    } catch {
      throw UsageError(message: "\(error).")
    }
  }
}
