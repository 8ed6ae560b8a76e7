from envcheck.api import Report as Report
from envcheck.api import doctor as doctor

__version__: str
