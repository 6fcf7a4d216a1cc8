from tests.support.console_fixtures import browser, console_service, sign_in

__all__ = ["browser", "console_service", "sign_in"]
