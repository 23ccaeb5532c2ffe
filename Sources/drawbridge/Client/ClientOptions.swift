import ByteStreams
import Configuration
import Host
import Reactor
import Sessions
import TLSEngine

/// The gateway that a command uses, and the credentials for it.
struct ClientOptions {
  /// The default address of `drawbridge serve`.
  static let defaultURL = "http://127.0.0.1:8080"

  static let url = Flag(
    "url", .text("URL"),
    "the gateway: http://HOST:PORT, https://HOST, HOST:PORT or unix:/PATH (or DRAWBRIDGE_URL; default \(defaultURL))")
  static let session = Flag("session", .text("NAME"), "the session (default: default)")
  static let tokenFile = Flag(
    "token-file", .file,
    "file of the token to send (or DRAWBRIDGE_TOKEN_FILE); it is read again before each connection")
  static let caFile = Flag(
    "ca-file", .file, "PEM file of certificates to trust, besides the system's (or DRAWBRIDGE_CA_FILE)")
  static let certificate = Flag(
    "certificate", .file, "PEM file of the client certificate, if the gateway requires it")
  static let certificateKey = Flag(
    "certificate-key", .file, "PEM file of the key of --certificate (default: the same file)")

  static let connectionFlags = [url, tokenFile, caFile, certificate, certificateKey]
  static let flags = [session] + connectionFlags

  static let exitCodes: [Command.ExitCode] = [
    .usage, Command.ExitCode(ExitCode.noInput, "a file, such as the token's, cannot be read"),
    Command.ExitCode(ExitCode.unavailable, "no response, or the gateway refuses the request"),
    Command.ExitCode(ExitCode.output, "standard output cannot be written"),
    Command.ExitCode(ExitCode.temporary, "the gateway cannot execute the request now: repeat the command later"),
  ]

  let url: GatewayURL
  let session: String
  let tokenFile: String?
  /// The TLS settings for `https`.
  let context: TLSContext?

  /// - Parameter operand: the URL, if the command also accepts it as an operand.
  init(_ arguments: Arguments, operand: String? = nil) throws(UsageError) {
    if operand != nil, arguments.has(Self.url) {
      throw UsageError(message: "the URL is given twice: give it as an operand or as --url.")
    }
    let environment = SystemFile.environment()
    // An empty variable is treated as if it were not set.
    func variable(_ name: String) -> String? { environment[name].flatMap { $0.isEmpty ? nil : $0 } }
    url = try GatewayURL(operand ?? arguments[Self.url] ?? variable("DRAWBRIDGE_URL") ?? Self.defaultURL)
    session = arguments[Self.session] ?? SessionName.default
    guard SessionName.isValid(session) else {
      throw UsageError(message: "'\(session)' is not the name of a session: use \(SessionName.expectation).")
    }
    tokenFile = arguments[Self.tokenFile] ?? variable("DRAWBRIDGE_TOKEN_FILE")
    for flag in [Self.caFile, Self.certificate, Self.certificateKey] where !url.isSecure && arguments.has(flag) {
      throw UsageError(
        message: "--\(flag.name) has no effect, because the URL is not https: use https or omit it.")
    }
    if arguments.has(Self.certificateKey), !arguments.has(Self.certificate) {
      throw UsageError(message: "--certificate-key needs --certificate, the file of the certificate.")
    }
    var settings = TLSClientSettings()
    settings.trust.caFile = arguments[Self.caFile] ?? variable("DRAWBRIDGE_CA_FILE")
    if let certificate = arguments[Self.certificate] {
      settings.clientCertificate = .init(
        certificateFile: certificate, keyFile: arguments[Self.certificateKey] ?? certificate)
    }
    context = url.isSecure ? try Self.context(settings) : nil
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

  /// The path of a resource of the session.
  func path(_ part: String) -> String {
    url.path + "/v1/sessions/\(session)" + (part.isEmpty ? "" : "/\(part)")
  }
}

struct Query {
  private(set) var text = ""

  init() {}

  mutating func add(_ name: String, _ value: String?) {
    guard let value else { return }
    text += (text.isEmpty ? "?" : "&") + "\(name)=\(PercentEncoder.encode(Array(value.utf8).span))"
  }
}
